#include "xdp/map.h"

#include <bpf/libbpf.h>

#include <cerrno>
#include <span>

#include "xdp/map_kinds.h"
#include "xdp/map_memory.h"

namespace sluice {

namespace {

constexpr uint32_t kValueBytesMax = 1U << 30;  // the kernel's own bound is about that
constexpr uint32_t kCommonFlags =
    BPF_F_NUMA_NODE | BPF_F_RDONLY | BPF_F_WRONLY | BPF_F_RDONLY_PROG | BPF_F_WRONLY_PROG;

struct Bounds {
  uint32_t min;
  uint32_t max;
  uint32_t unit = 1;
};

// What the kernel accepts of each type, and how we make it.
struct KindRow {
  bpf_map_type type;
  Bounds key_bytes;
  Bounds value_bytes;
  uint32_t flags;  // in addition to kCommonFlags
  MapMaker make;
};

constexpr Bounds kIndex{4, 4};
// A number, or a number and the descriptor of a program.
constexpr Bounds kDevice{4, 8, 4};
constexpr Bounds kAnyKey{1, 512};
constexpr Bounds kPrefix{5, 4 + 256};  // its length, and 1 to 256 bytes
constexpr Bounds kNoBytes{0, 0};
constexpr Bounds kAnyValue{1, kValueBytesMax};

constexpr KindRow kKinds[] = {
    {BPF_MAP_TYPE_ARRAY, kIndex, kAnyValue, BPF_F_MMAPABLE | BPF_F_INNER_MAP, make_array},
    {BPF_MAP_TYPE_PERCPU_ARRAY, kIndex, kAnyValue, 0, make_per_cpu_array},
    {BPF_MAP_TYPE_HASH, kAnyKey, kAnyValue, BPF_F_NO_PREALLOC | BPF_F_ZERO_SEED, make_hash},
    {BPF_MAP_TYPE_PERCPU_HASH, kAnyKey, kAnyValue, BPF_F_NO_PREALLOC | BPF_F_ZERO_SEED, make_hash},
    {BPF_MAP_TYPE_LRU_HASH, kAnyKey, kAnyValue, BPF_F_NO_COMMON_LRU | BPF_F_ZERO_SEED, make_hash},
    {BPF_MAP_TYPE_LRU_PERCPU_HASH, kAnyKey, kAnyValue, BPF_F_NO_COMMON_LRU | BPF_F_ZERO_SEED,
     make_hash},
    {BPF_MAP_TYPE_DEVMAP, kIndex, kDevice, 0, make_redirect_slots},
    {BPF_MAP_TYPE_DEVMAP_HASH, kIndex, kDevice, 0, make_device_hash},
    {BPF_MAP_TYPE_XSKMAP, kIndex, kIndex, 0, make_redirect_slots},
    {BPF_MAP_TYPE_CPUMAP, kIndex, kDevice, 0, make_redirect_slots},
    {BPF_MAP_TYPE_LPM_TRIE, kPrefix, kAnyValue, BPF_F_NO_PREALLOC, make_lpm_trie},
    {BPF_MAP_TYPE_PROG_ARRAY, kIndex, kIndex, 0, make_program_array},
    {BPF_MAP_TYPE_ARRAY_OF_MAPS, kIndex, kIndex, 0, make_array_of_maps},
    {BPF_MAP_TYPE_HASH_OF_MAPS, kAnyKey, kIndex, BPF_F_NO_PREALLOC | BPF_F_ZERO_SEED,
     make_hash_of_maps},
    {BPF_MAP_TYPE_PERF_EVENT_ARRAY, kIndex, kIndex, 0, make_record_ring},
    {BPF_MAP_TYPE_RINGBUF, kNoBytes, kNoBytes, 0, make_record_ring},
    {BPF_MAP_TYPE_QUEUE, kNoBytes, kAnyValue, 0, make_queue},
    {BPF_MAP_TYPE_STACK, kNoBytes, kAnyValue, 0, make_queue},
    {BPF_MAP_TYPE_BLOOM_FILTER, kNoBytes, kAnyValue, BPF_F_ZERO_SEED, make_bloom_filter},
};

const KindRow* find_kind(bpf_map_type type) {
  for (const KindRow& row : kKinds) {
    if (row.type == type) return &row;
  }
  return nullptr;
}

std::string title(const MapShape& shape) {
  return fmt::format("map {} ({})", shape.name.empty() ? "without a name" : shape.name,
                     map_type_name(shape.type));
}

std::string bounds_text(Bounds bounds) {
  if (bounds.min == bounds.max) return fmt::format("{}", bounds.min);
  if (bounds.unit > 1) return fmt::format("{} or {}", bounds.min, bounds.max);
  return fmt::format("{} to {}", bounds.min, bounds.max);
}

Result<void> check_shape(const MapShape& shape, const KindRow& row) {
  const auto is_in = [](uint32_t size, Bounds bounds) {
    return size >= bounds.min && size <= bounds.max && size % bounds.unit == 0;
  };
  if (!is_in(shape.key_size, row.key_bytes)) {
    return fail("{} has keys of {} bytes: they must have {}", title(shape), shape.key_size,
                bounds_text(row.key_bytes));
  }
  if (!is_in(shape.value_size, row.value_bytes)) {
    return fail("{} has values of {} bytes: they must have {}", title(shape), shape.value_size,
                bounds_text(row.value_bytes));
  }
  if (shape.max_entries == 0) {
    return fail("{} has no entries: set its max_entries", title(shape));
  }
  const uint32_t unknown = shape.flags & ~(row.flags | kCommonFlags);
  if (unknown != 0) {
    return fail("{} has the flags 0x{:x}, which this type does not have: remove them", title(shape),
                unknown);
  }
  return {};
}

}  // namespace

MapRef XdpMap::ref() {
  return {.map = this,
          .key_size = shape_.key_size,
          .value_size = shape_.value_size,
          .array = {},
          .programs = {},
          .values = {}};
}

int XdpMap::update(const void*, const void*, uint64_t) { return -EINVAL; }
int XdpMap::erase(const void*) { return -EINVAL; }
int XdpMap::push(const void*, uint64_t) { return -EINVAL; }
int XdpMap::pop(void*) { return -EINVAL; }
int XdpMap::peek(void*) { return -EINVAL; }
RedirectTarget XdpMap::find_target(uint32_t) { return {}; }
int XdpMap::write(const void* key, const void* value, uint64_t flags) {
  return update(key, value, flags);
}
int XdpMap::next_key(const void*, void*) { return -EINVAL; }
uint8_t* XdpMap::lookup_copy(const void* key, uint32_t copy) {
  return copy < copies() ? lookup(key) : nullptr;
}
int XdpMap::put_map(const void*, XdpMap*, uint64_t) { return -EINVAL; }
int XdpMap::put_program(uint32_t, const TailTarget*, uint32_t) { return -EINVAL; }

bool XdpMap::is_per_cpu() const {
  return shape_.type == BPF_MAP_TYPE_PERCPU_ARRAY || shape_.type == BPF_MAP_TYPE_PERCPU_HASH ||
         shape_.type == BPF_MAP_TYPE_LRU_PERCPU_HASH;
}

size_t XdpMap::value_bytes() const {
  return is_per_cpu() ? value_stride(shape_.value_size) * copies() : shape_.value_size;
}

Result<std::unique_ptr<XdpMap>> create_map(const MapShape& shape, const MapOptions& options) {
  SLUICE_ASSERT(options.worker_count > 0);
  const KindRow* row = find_kind(shape.type);
  if (row == nullptr) {
    return fail("{}: maps of this type cannot be used in userspace; run this program in the kernel",
                title(shape));
  }
  Result<void> checked = check_shape(shape, *row);
  if (!checked) return fail(checked.error());
  Result<std::unique_ptr<XdpMap>> map = row->make(shape, options);
  if (!map) return fail("{}: {}", title(shape), map.error().text);
  return map;
}

std::string map_type_name(bpf_map_type type) {
  const char* name = ::libbpf_bpf_map_type_str(type);
  return name != nullptr ? name : fmt::format("type {}", static_cast<uint32_t>(type));
}

}  // namespace sluice
