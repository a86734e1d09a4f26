// The helpers that reach maps. What a map of the wrong type answers is an error, never more: also
// programs that no verifier has seen may come here.
#include <linux/bpf.h>

#include "xdp/helper_function.h"
#include "xdp/map.h"
#include "xdp/map_ring.h"
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

// The frame as it is now, for a report that carries its first bytes.
std::span<const uint8_t> frame_bytes() {
  const xdp_md* context = run_state.context;
  if (context == nullptr) return {};
  return {reinterpret_cast<const uint8_t*>(uint64_t{context->data}),
          size_t{context->data_end} - context->data};
}

// As bpf_xdp_event_output: the low half of the flags is the entry, then come 20 bits that say how
// much of the frame goes along.
uint64_t perf_event_output(uint64_t, uint64_t map_pointer, uint64_t flags, uint64_t data,
                           uint64_t bytes) {
  XdpMap& map = map_of(map_pointer);
  if ((flags & ~uint64_t{BPF_F_INDEX_MASK | BPF_F_CTXLEN_MASK}) != 0 ||
      map.shape().type != BPF_MAP_TYPE_PERF_EVENT_ARRAY) {
    return status_of(-EINVAL);
  }
  const std::span<const uint8_t> frame = frame_bytes();
  const uint64_t frame_part = (flags & BPF_F_CTXLEN_MASK) >> 32;
  if (frame_part > frame.size()) return status_of(-EFAULT);
  const uint64_t asked = flags & BPF_F_INDEX_MASK;
  const uint64_t index = asked == BPF_F_CURRENT_CPU ? run_state.worker_index : asked;
  if (index >= map.shape().max_entries) return status_of(-E2BIG);
  if (index != run_state.worker_index) return status_of(-EOPNOTSUPP);
  RecordRing* ring = map.ring(run_state.worker_index);
  if (ring == nullptr) return status_of(-ENOENT);
  const bool is_done =
      ring->output({static_cast<const uint8_t*>(memory_of(data)), bytes}, frame.first(frame_part));
  return status_of(is_done ? 0 : -ENOSPC);
}

RecordRing* ringbuf_of(uint64_t map_pointer) {
  XdpMap& map = map_of(map_pointer);
  return map.shape().type == BPF_MAP_TYPE_RINGBUF ? map.ring(0) : nullptr;
}

uint64_t ringbuf_output(uint64_t map, uint64_t data, uint64_t bytes, uint64_t flags, uint64_t) {
  RecordRing* ring = ringbuf_of(map);
  const uint64_t known = BPF_RB_NO_WAKEUP | BPF_RB_FORCE_WAKEUP;
  if (ring == nullptr || (flags & ~known) != 0) return status_of(-EINVAL);
  const bool is_done = ring->output({static_cast<const uint8_t*>(memory_of(data)), bytes});
  return status_of(is_done ? 0 : -EAGAIN);
}

uint64_t ringbuf_reserve(uint64_t map, uint64_t bytes, uint64_t flags, uint64_t, uint64_t) {
  RecordRing* ring = ringbuf_of(map);
  return ring == nullptr || flags != 0 ? 0 : pointer_of(ring->reserve(bytes));
}

uint64_t ringbuf_submit(uint64_t record, uint64_t, uint64_t, uint64_t, uint64_t) {
  RecordRing::finish(static_cast<uint8_t*>(memory_of(record)), false);
  return 0;
}

uint64_t ringbuf_discard(uint64_t record, uint64_t, uint64_t, uint64_t, uint64_t) {
  RecordRing::finish(static_cast<uint8_t*>(memory_of(record)), true);
  return 0;
}

uint64_t ringbuf_query(uint64_t map, uint64_t what, uint64_t, uint64_t, uint64_t) {
  const RecordRing* ring = ringbuf_of(map);
  if (ring == nullptr) return 0;
  switch (what) {
    case BPF_RB_AVAIL_DATA: {
      const uint64_t consumed = ring->consumed();  // first: it never overtakes what was produced
      return ring->produced() - consumed;
    }
    case BPF_RB_RING_SIZE:
      return ring->size();
    case BPF_RB_CONS_POS:
      return ring->consumed();
    case BPF_RB_PROD_POS:
      return ring->produced();
    default:
      return 0;
  }
}

constexpr HelperEntry kHelpers[] = {
    {BPF_FUNC_map_lookup_elem, "map_lookup_elem", map_lookup_elem},
    {BPF_FUNC_map_update_elem, "map_update_elem", map_update_elem},
    {BPF_FUNC_map_delete_elem, "map_delete_elem", map_delete_elem},
    {BPF_FUNC_perf_event_output, "perf_event_output", perf_event_output},
    {BPF_FUNC_redirect_map, "redirect_map", redirect_map},
    {BPF_FUNC_map_push_elem, "map_push_elem", map_push_elem},
    {BPF_FUNC_map_pop_elem, "map_pop_elem", map_pop_elem},
    {BPF_FUNC_map_peek_elem, "map_peek_elem", map_peek_elem},
    {BPF_FUNC_map_lookup_percpu_elem, "map_lookup_percpu_elem", map_lookup_percpu_elem},
    {BPF_FUNC_ringbuf_output, "ringbuf_output", ringbuf_output},
    {BPF_FUNC_ringbuf_reserve, "ringbuf_reserve", ringbuf_reserve},
    {BPF_FUNC_ringbuf_submit, "ringbuf_submit", ringbuf_submit},
    {BPF_FUNC_ringbuf_discard, "ringbuf_discard", ringbuf_discard},
    {BPF_FUNC_ringbuf_query, "ringbuf_query", ringbuf_query},
};

}  // namespace

std::span<const HelperEntry> map_helpers() { return kHelpers; }

}  // namespace sluice
