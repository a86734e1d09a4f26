#include "xdp/checked_memory.h"

#include "xdp/helper_arguments.h"
#include "xdp/map.h"

namespace sluice {
namespace {

bool lies_in(uint64_t address, uint64_t bytes, uint64_t begin, uint64_t end) {
  return address >= begin && address <= end && bytes <= end - address;
}

uint64_t number_of(const void* pointer) { return reinterpret_cast<uint64_t>(pointer); }

bool lies_in_a_value(const ArrayLayout& layout, uint64_t address, uint64_t bytes) {
  const uint64_t base = number_of(layout.base);
  if (address < base || layout.stride == 0) return false;
  const uint64_t offset = address - base;
  return offset / layout.stride < layout.max_entries && bytes <= layout.value_size &&
         offset % layout.stride <= layout.value_size - bytes;
}

// No helper takes more at once; sizes beyond are no sizes.
constexpr uint64_t kArgumentBytesMax = 1 << 20;

}  // namespace

bool CheckedMemory::holds_frame(uint64_t address, uint64_t bytes) const {
  return bounds_.context != nullptr &&
         lies_in(address, bytes, bounds_.context->data_meta, bounds_.context->data_end);
}

bool CheckedMemory::is_value_of_a_map(uint64_t address, uint64_t bytes) const {
  for (const MapRef& ref : image_->maps) {  // at most kMapsMax
    if (ref.array && lies_in_a_value(*ref.array, address, bytes)) return true;
    if (ref.values && lies_in_a_value(*ref.values, address, bytes)) return true;
  }
  return false;
}

bool CheckedMemory::holds(uint64_t address, uint64_t bytes, bool for_writing) const {
  const uint64_t stack = number_of(stack_.data());
  if (lies_in(address, bytes, stack, stack + stack_.size())) return true;
  if (holds_frame(address, bytes)) return true;
  const uint64_t context = number_of(bounds_.context);
  if (context != 0 && !for_writing && lies_in(address, bytes, context, context + sizeof(xdp_md)))
    return true;
  for (const MemoryRegion& region : bounds_.regions)
    if (lies_in(address, bytes, region.begin, region.end) && (region.is_writable || !for_writing))
      return true;
  return is_value_of_a_map(address, bytes);
}

const MapRef* CheckedMemory::find_map(uint64_t pointer) const {
  for (const MapRef& ref : image_->maps)
    if (number_of(ref.map) == pointer) return &ref;
  return nullptr;
}

bool CheckedMemory::fits(uint32_t helper_id, const uint64_t* arguments) const {
  const auto* kinds = argument_kinds(helper_id);
  if (kinds == nullptr) return false;
  const MapRef* map = nullptr;
  for (size_t i = 0; i < kinds->size(); ++i) {
    const uint64_t value = arguments[i];
    const uint64_t next = i + 1 < kinds->size() ? arguments[i + 1] : 0;
    bool fits = true;
    switch ((*kinds)[i]) {
      case ArgumentKind::any:
        break;
      case ArgumentKind::context:
        fits = bounds_.context != nullptr && value == number_of(bounds_.context);
        break;
      case ArgumentKind::map:
        map = find_map(value);
        fits = map != nullptr;
        break;
      case ArgumentKind::key:
        fits = map != nullptr && may_read(value, map->map->shape().key_size);
        break;
      case ArgumentKind::value:
        fits = map != nullptr && may_read(value, map->map->shape().value_size);
        break;
      case ArgumentKind::value_out:
        fits = map != nullptr && may_write(value, map->map->shape().value_size);
        break;
      case ArgumentKind::bytes_or_null:
        fits = value == 0 ? next == 0 : next <= kArgumentBytesMax && may_read(value, next);
        break;
      case ArgumentKind::bytes:
        fits = next <= kArgumentBytesMax && may_read(value, next);
        break;
      case ArgumentKind::bytes_out:
        fits = next <= kArgumentBytesMax && may_write(value, next);
        break;
      case ArgumentKind::word_out:
        fits = may_write(value, 4);
        break;
    }
    if (!fits) return false;
  }
  return true;
}

}  // namespace sluice
