// ChainBytes: what every descriptor of a chain goes through, whichever format its ring has.
//
// What: the order of directions, the chain's totals, and the translation of each buffer with its
// length. What not: how one descriptor leads to the next, which is the format's.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>

#include "memory/guest_memory.h"
#include "virtio/chain.h"

namespace sluice {

class ChainBytes {
 public:
  ChainBytes(const GuestMemory& memory, SpanList& spans) : memory_(memory), spans_(spans) {}

  // One buffer, as its descriptor says.
  [[gnu::always_inline]] RingFault add(uint64_t address, uint32_t bytes, bool is_writable) {
    if (!is_writable && has_writable_) [[unlikely]]
      return RingFault::readable_after_writable;
    has_writable_ |= is_writable;
    // Without a byte it is skipped, but a direction is a direction.
    if (bytes == 0) [[unlikely]]
      return RingFault::none;
    Part& part = parts_[is_writable ? 1 : 0];
    if (bytes > std::numeric_limits<uint32_t>::max() - part.bytes) [[unlikely]]
      return RingFault::too_many_bytes;
    part.bytes += bytes;
    if (const auto span = memory_.translate(GuestAddr{address}, bytes)) [[likely]] {
      if (!spans_.push(*span)) [[unlikely]]
        return RingFault::too_many_spans;
      ++part.spans;
      return RingFault::none;
    }
    return add_in_pieces(address, bytes, part);
  }

  // An indirect table of `bytes` at `address`: whether it is guest memory from end to end, also
  // where the chain does not lead.
  bool find_table(uint64_t address, uint32_t bytes) {
    table_address_ = address;
    table_ = memory_.translate(GuestAddr{address}, bytes);
    if (table_) [[likely]]
      return true;
    const size_t before = spans_.size();
    const auto result = memory_.translate(GuestAddr{address}, bytes, spans_);
    spans_.truncate(before);
    return result == GuestMemory::Translation::ok;
  }
  // Copies one entry out of the table that find_table() found. False: there is no room to find its
  // pieces.
  template <typename Descriptor>
  bool load_entry(size_t index, Descriptor& descriptor) {
    const size_t offset = sizeof descriptor * index;
    if (table_) [[likely]] {
      table_->copy_out(offset, &descriptor, sizeof descriptor);
      return true;
    }
    const size_t before = spans_.size();
    if (memory_.translate(GuestAddr{table_address_ + offset}, sizeof descriptor, spans_) !=
        GuestMemory::Translation::ok)
      return false;
    copy_out(spans_.slice(before, spans_.size() - before), 0, &descriptor, sizeof descriptor);
    spans_.truncate(before);
    return true;
  }

  struct Part {
    uint32_t bytes = 0;
    uint32_t spans = 0;
  };
  const Part& readable() const { return parts_[0]; }
  const Part& writable() const { return parts_[1]; }

 private:
  // A buffer that lies in several regions.
  RingFault add_in_pieces(uint64_t address, uint32_t bytes, Part& part) {
    const size_t before = spans_.size();
    switch (memory_.translate(GuestAddr{address}, bytes, spans_)) {
      case GuestMemory::Translation::ok:
        part.spans += static_cast<uint32_t>(spans_.size() - before);
        return RingFault::none;
      case GuestMemory::Translation::not_mapped:
        return RingFault::address_not_mapped;
      case GuestMemory::Translation::list_full:
        break;
    }
    return RingFault::too_many_spans;
  }

  const GuestMemory& memory_;
  SpanList& spans_;
  Part parts_[2];
  bool has_writable_ = false;
  std::optional<GuestSpan> table_;
  uint64_t table_address_ = 0;
};

}  // namespace sluice
