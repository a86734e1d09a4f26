#include "xdp/map_array.h"

#include <bpf/bpf.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>

#include "xdp/map_kinds.h"

namespace sluice {

namespace {

// What the kernel maps: whole pages.
size_t mapped_bytes(const MapShape& shape) {
  return round_up(value_stride(shape.value_size) * shape.max_entries,
                  static_cast<size_t>(::sysconf(_SC_PAGESIZE)));
}

}  // namespace

uint32_t index_of(const void* key) {
  uint32_t index = 0;
  std::memcpy(&index, key, sizeof index);
  return index;
}

int check_array_update(const MapShape& shape, const void* key, uint64_t flags) {
  // Also BPF_F_LOCK: there is no bpf_spin_lock in our values.
  if (flags > BPF_EXIST) return -EINVAL;
  if (index_of(key) >= shape.max_entries) return -E2BIG;
  if (flags == BPF_NOEXIST) return -EEXIST;
  return 0;
}

int next_index(const MapShape& shape, const void* key, void* next) {
  uint32_t index = 0;
  if (key != nullptr && index_of(key) < shape.max_entries) {
    if (index_of(key) == shape.max_entries - 1) return -ENOENT;
    index = index_of(key) + 1;
  }
  std::memcpy(next, &index, sizeof index);
  return 0;
}

ArrayMap::ArrayMap(const MapShape& shape, const MapOptions& options, MapMemory memory,
                   bool is_writable)
    : XdpMap(shape, options),
      memory_(std::move(memory)),
      stride_(value_stride(shape.value_size)),
      is_writable_(is_writable) {}

MapRef ArrayMap::ref() {
  MapRef ref = XdpMap::ref();
  ref.array = ArrayLayout{.base = memory_.data(),
                          .value_size = shape().value_size,
                          .stride = static_cast<uint32_t>(stride_),
                          .max_entries = shape().max_entries};
  return ref;
}

uint8_t* ArrayMap::lookup(const void* key) {
  const uint32_t index = index_of(key);
  return index < shape().max_entries ? memory_.data() + index * stride_ : nullptr;
}

int ArrayMap::update(const void* key, const void* value, uint64_t flags) {
  if (!is_writable_) return -EPERM;
  const int status = check_array_update(shape(), key, flags);
  if (status == 0) copy_in(lookup(key), value, shape().value_size);
  return status;
}

int ArrayMap::erase(const void*) { return -EINVAL; }

int ArrayMap::read(const void* key, void* value) {
  const uint8_t* from = lookup(key);
  if (from == nullptr) return -ENOENT;
  copy_out(value, from, shape().value_size);
  return 0;
}

int ArrayMap::next_key(const void* key, void* next) { return next_index(shape(), key, next); }

PerCpuArrayMap::PerCpuArrayMap(const MapShape& shape, const MapOptions& options, MapMemory memory)
    : XdpMap(shape, options), memory_(std::move(memory)), stride_(value_stride(shape.value_size)) {}

size_t PerCpuArrayMap::area_bytes(const MapShape& shape) {
  return value_stride(shape.value_size) * area_entries(shape.max_entries);
}

MapRef PerCpuArrayMap::ref() {
  MapRef ref = XdpMap::ref();
  ref.values = ArrayLayout{
      .base = memory_.data(),
      .value_size = shape().value_size,
      .stride = static_cast<uint32_t>(stride_),
      .max_entries = static_cast<uint32_t>(area_entries(shape().max_entries) * copies())};
  return ref;
}

uint8_t* PerCpuArrayMap::value_at(uint32_t index, uint32_t copy) const {
  return memory_.data() + copy * area_bytes(shape()) + index * stride_;
}

uint8_t* PerCpuArrayMap::lookup(const void* key) {
  return lookup_copy(key, run_state.worker_index);
}

uint8_t* PerCpuArrayMap::lookup_copy(const void* key, uint32_t copy) {
  const uint32_t index = index_of(key);
  if (index >= shape().max_entries || copy >= copies()) return nullptr;
  return value_at(index, copy);
}

int PerCpuArrayMap::update(const void* key, const void* value, uint64_t flags) {
  SLUICE_ASSERT(run_state.worker_index < copies());
  const int status = check_array_update(shape(), key, flags);
  if (status == 0) copy_in(lookup(key), value, shape().value_size);
  return status;
}

int PerCpuArrayMap::erase(const void*) { return -EINVAL; }

int PerCpuArrayMap::read(const void* key, void* value) {
  if (index_of(key) >= shape().max_entries) return -ENOENT;
  for (uint32_t copy = 0; copy < copies(); ++copy) {
    copy_out(static_cast<uint8_t*>(value) + copy * stride_, value_at(index_of(key), copy), stride_);
  }
  return 0;
}

int PerCpuArrayMap::write(const void* key, const void* value, uint64_t flags) {
  const int status = check_array_update(shape(), key, flags);
  if (status != 0) return status;
  for (uint32_t copy = 0; copy < copies(); ++copy) {
    copy_in(value_at(index_of(key), copy), static_cast<const uint8_t*>(value) + copy * stride_,
            shape().value_size);
  }
  return 0;
}

int PerCpuArrayMap::next_key(const void* key, void* next) { return next_index(shape(), key, next); }

MapResult make_array(const MapShape& shape, const MapOptions& options) {
  Result<MapMemory> memory = MapMemory::create(mapped_bytes(shape), true);
  if (!memory) return fail(memory.error());
  return MapResult(std::make_unique<ArrayMap>(shape, options, std::move(*memory), true));
}

MapResult make_per_cpu_array(const MapShape& shape, const MapOptions& options) {
  Result<MapMemory> memory =
      MapMemory::create(PerCpuArrayMap::area_bytes(shape) * options.worker_count, true);
  if (!memory) return fail(memory.error());
  return MapResult(std::make_unique<PerCpuArrayMap>(shape, options, std::move(*memory)));
}

MapResult create_array_over(int map_fd) {
  bpf_map_info info = {};
  uint32_t info_bytes = sizeof info;
  if (::bpf_obj_get_info_by_fd(map_fd, &info, &info_bytes) != 0) {
    return fail("the kernel says nothing about map descriptor {}: {}", map_fd, errno_text(errno));
  }
  const MapShape shape{.type = static_cast<bpf_map_type>(info.type),
                       .key_size = info.key_size,
                       .value_size = info.value_size,
                       .max_entries = info.max_entries,
                       .flags = info.map_flags,
                       .name = info.name};
  if (shape.type != BPF_MAP_TYPE_ARRAY || (shape.flags & BPF_F_MMAPABLE) == 0) {
    return fail(
        "map {} ({}) cannot be shared with the kernel: only an array made with "
        "BPF_F_MMAPABLE can",
        shape.name, map_type_name(shape.type));
  }
  // A frozen map (.rodata after loading) may be mapped for reading only.
  const size_t bytes = mapped_bytes(shape);
  bool is_writable = true;
  void* address = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, map_fd, 0);
  if (address == MAP_FAILED && (errno == EPERM || errno == EACCES)) {
    is_writable = false;
    address = ::mmap(nullptr, bytes, PROT_READ, MAP_SHARED, map_fd, 0);
  }
  if (address == MAP_FAILED) {
    return fail("the kernel does not map array {}: {}", shape.name, errno_text(errno));
  }
  return MapResult(std::make_unique<ArrayMap>(shape, MapOptions{.id = info.id},
                                              MapMemory::adopt(address, bytes), is_writable));
}

}  // namespace sluice
