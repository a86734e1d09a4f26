// Chain: one request of the guest. It lives at most one burst.
//
// A chain comes out of a ring by pop() and goes back by exactly one of complete() and unpop(); both
// consume it, and a chain that is destroyed while it is live is our own bug and aborts. It names
// its spans by position in the SpanList that pop() filled, readable ones first. [virtio 2.7.4.2]
//
// The driver may rewrite descriptors at any time: everything here was copied out of the ring once.
#pragma once

#include <cstdint>
#include <utility>

#include "base/assert.h"

namespace sluice {

// What a ring answers to pop(). Nothing there, and a driver that broke the rules, are two things.
enum class Pop : uint8_t { chain, empty, broken };

// Why a ring broke, for the log line that an operator reads.
enum class RingFault : uint8_t {
  none,
  avail_index_jump,     // more chains available than the ring has entries [virtio 2.7.13.3]
  head_out_of_range,    // an available ring entry that is no descriptor of the ring
  next_out_of_range,    // a descriptor that points past its table
  chain_too_long,       // more descriptors than the ring has: a loop [virtio 2.7.5.3.1]
  nested_indirect,      // an indirect table inside one, or INDIRECT together with NEXT
  indirect_not_agreed,  // INDIRECT without the feature
  indirect_table_size,  // no multiple of 16, empty, or longer than the ring
  readable_after_writable,
  address_not_mapped,  // a buffer or a table that is not guest memory
  wrong_direction,     // writable buffers in a from_guest chain, readable ones in a to_guest chain
  memory_vanished,     // the front end truncated the file behind the guest's memory
  too_many_spans,
  too_many_bytes,  // a chain over 4 GiB [virtio 2.7.5.2]
};
const char* ring_fault_sentence(RingFault fault);

class Chain {
 public:
  Chain() = default;
  Chain(Chain&& other) noexcept { *this = std::move(other); }
  Chain& operator=(Chain&& other) noexcept {
    SLUICE_ASSERT(!live_);
    live_ = std::exchange(other.live_, false);
    head_ = other.head_;
    slots_ = other.slots_;
    span_first_ = other.span_first_;
    readable_count_ = other.readable_count_;
    writable_count_ = other.writable_count_;
    readable_bytes_ = other.readable_bytes_;
    writable_bytes_ = other.writable_bytes_;
    return *this;
  }
  ~Chain() { SLUICE_ASSERT(!live_); }

  bool live() const { return live_; }
  // Split rings: the head descriptor. Packed rings: the buffer id, which is the driver's own.
  uint16_t head() const { return head_; }
  uint32_t span_first() const { return span_first_; }
  uint32_t readable_count() const { return readable_count_; }
  uint32_t writable_count() const { return writable_count_; }
  uint32_t readable_bytes() const { return readable_bytes_; }
  uint32_t writable_bytes() const { return writable_bytes_; }

 private:
  friend class SplitQueue;
  friend class PackedQueue;
  friend class ChainWalk;
  void consume() {
    SLUICE_ASSERT(live_);
    live_ = false;
  }

  bool live_ = false;
  uint16_t head_ = 0;
  uint16_t slots_ = 1;  // packed rings: how many descriptors of the ring it takes
  uint32_t span_first_ = 0;
  uint32_t readable_count_ = 0;  // spans
  uint32_t writable_count_ = 0;
  uint32_t readable_bytes_ = 0;
  uint32_t writable_bytes_ = 0;
};

}  // namespace sluice
