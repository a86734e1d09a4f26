// The helpers that reach maps. What a map of the wrong type answers is an error, never more: also
// programs that no verifier has seen may come here.
#include <linux/bpf.h>

#include "xdp/helper_function.h"
#include "xdp/map.h"
#include "xdp/run_state.h"

namespace sluice {

namespace {

XdpMap& map_of(uint64_t r1) { return *reinterpret_cast<XdpMap*>(r1); }
void* memory_of(uint64_t pointer) { return reinterpret_cast<void*>(pointer); }
uint64_t pointer_of(const uint8_t* memory) { return reinterpret_cast<uint64_t>(memory); }
// -errno with its sign in all 64 bits.
uint64_t status_of(int status) { return static_cast<uint64_t>(int64_t{status}); }

uint64_t map_lookup_elem(uint64_t map, uint64_t key, uint64_t, uint64_t, uint64_t) {
  return pointer_of(map_of(map).lookup(memory_of(key)));
}

uint64_t map_update_elem(uint64_t map, uint64_t key, uint64_t value, uint64_t flags, uint64_t) {
  return status_of(map_of(map).update(memory_of(key), memory_of(value), flags));
}

uint64_t map_delete_elem(uint64_t map, uint64_t key, uint64_t, uint64_t, uint64_t) {
  return status_of(map_of(map).erase(memory_of(key)));
}

uint64_t map_push_elem(uint64_t map, uint64_t value, uint64_t flags, uint64_t, uint64_t) {
  return status_of(map_of(map).push(memory_of(value), flags));
}

uint64_t map_pop_elem(uint64_t map, uint64_t value, uint64_t, uint64_t, uint64_t) {
  return status_of(map_of(map).pop(memory_of(value)));
}

uint64_t map_peek_elem(uint64_t map, uint64_t value, uint64_t, uint64_t, uint64_t) {
  return status_of(map_of(map).peek(memory_of(value)));
}

uint64_t map_lookup_percpu_elem(uint64_t map, uint64_t key, uint64_t copy, uint64_t, uint64_t) {
  return pointer_of(map_of(map).lookup_copy(memory_of(key), static_cast<uint32_t>(copy)));
}

// As the kernel's __bpf_xdp_redirect_map: flags that the map does not have end in XDP_ABORTED and
// leave the last target alone; an entry that is not there gives the flags' low bits and forgets it.
uint64_t redirect_map(uint64_t map_pointer, uint64_t key, uint64_t flags, uint64_t, uint64_t) {
  XdpMap& map = map_of(map_pointer);
  constexpr uint64_t kActionMask = XDP_ABORTED | XDP_DROP | XDP_PASS | XDP_TX;
  const bool has_devices =
      map.shape().type == BPF_MAP_TYPE_DEVMAP || map.shape().type == BPF_MAP_TYPE_DEVMAP_HASH;
  const uint64_t known = has_devices ? uint64_t{BPF_F_BROADCAST | BPF_F_EXCLUDE_INGRESS} : 0;
  if ((flags & ~(kActionMask | known)) != 0) return XDP_ABORTED;
  if ((flags & BPF_F_BROADCAST) != 0) {
    run_state.redirect = {.kind = RedirectTarget::Kind::broadcast,
                          .exclude_ingress = (flags & BPF_F_EXCLUDE_INGRESS) != 0,
                          .map = &map};
    return XDP_REDIRECT;
  }
  run_state.redirect = map.find_target(static_cast<uint32_t>(key));
  const bool is_found = run_state.redirect.kind != RedirectTarget::Kind::none;
  return is_found ? uint64_t{XDP_REDIRECT} : flags & kActionMask;
}

constexpr HelperEntry kHelpers[] = {
    {BPF_FUNC_map_lookup_elem, "map_lookup_elem", map_lookup_elem},
    {BPF_FUNC_map_update_elem, "map_update_elem", map_update_elem},
    {BPF_FUNC_map_delete_elem, "map_delete_elem", map_delete_elem},
    {BPF_FUNC_redirect_map, "redirect_map", redirect_map},
    {BPF_FUNC_map_push_elem, "map_push_elem", map_push_elem},
    {BPF_FUNC_map_pop_elem, "map_pop_elem", map_pop_elem},
    {BPF_FUNC_map_peek_elem, "map_peek_elem", map_peek_elem},
    {BPF_FUNC_map_lookup_percpu_elem, "map_lookup_percpu_elem", map_lookup_percpu_elem},
};

}  // namespace

std::span<const HelperEntry> map_helpers() { return kHelpers; }

}  // namespace sluice
