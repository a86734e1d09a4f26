#include "port/nic_control.h"

#include <unistd.h>

#include <cstring>

#include "port/foreign_event.h"
#include "virtio/features.h"

namespace sluice {
namespace {

constexpr uint32_t kPage = 4096;
constexpr uint8_t kClassMq = 4;
constexpr uint8_t kPairsSet = 0;
constexpr uint8_t kOk = 0;
constexpr size_t kCommandBytes = 4;

}  // namespace

template <typename Ring>
NicControl::Place<Ring>::Place(uint64_t features, NicMemory& memory)
    : descriptors(memory.take(Ring::descriptors_bytes(kRingSize), kPage)),
      driver_area(memory.take(Ring::driver_area_bytes(kRingSize), kPage)),
      device_area(memory.take(Ring::device_area_bytes(kRingSize), kPage)),
      ring({.size = kRingSize,
            .event_idx = (features & feature::event_idx) != 0,
            .indirect = false,
            .in_order = (features & feature::in_order) != 0,
            .descriptors = memory.span(descriptors, Ring::descriptors_bytes(kRingSize)),
            .driver_area = memory.span(driver_area, Ring::driver_area_bytes(kRingSize)),
            .device_area = memory.span(device_area, Ring::device_area_bytes(kRingSize)),
            .tables = {}}) {}

// Three areas and a page for command and answer; alignment may cost a page each.
uint64_t NicControl::memory_bytes(uint64_t) { return uint64_t{8} * kPage; }

NicControl::NicControl(uint64_t features, NicMemory& memory) : memory_(memory) {
  if (features & feature::ring_packed)
    place_.emplace<Place<PackedDriver>>(features, memory);
  else
    place_.emplace<Place<SplitDriver>>(features, memory);
  command_ = memory.take(kPage, kPage);
  answer_ = GuestAddr{raw(command_) + kPage / 2};
}

FrontEndRing NicControl::describe() const {
  FrontEndRing told;
  const auto tell = [&]<typename Ring>(const Place<Ring>& place) {
    told.size = kRingSize;
    told.base = Ring::kFreshBase;
    told.descriptors = memory_.frontend(place.descriptors);
    told.driver_area = memory_.frontend(place.driver_area);
    told.device_area = memory_.frontend(place.device_area);
  };
  if (const auto* split = std::get_if<Place<SplitDriver>>(&place_))
    tell(*split);
  else
    tell(std::get<Place<PackedDriver>>(place_));
  return told;
}

bool NicControl::set_queue_pairs(uint16_t pairs) {
  if (waits_ || broken_) return false;
  const uint8_t command[kCommandBytes] = {kClassMq, kPairsSet, static_cast<uint8_t>(pairs),
                                          static_cast<uint8_t>(pairs >> 8)};
  std::memcpy(memory_.at(command_), command, sizeof command);
  const BufferPiece readable{command_, kCommandBytes};
  const BufferPiece writable{answer_, 1};
  bool kick = false;
  const auto send = [&](auto& place) {
    const bool added = place.ring.add({&readable, 1}, {&writable, 1}, 0);
    SLUICE_ASSERT(added);
    place.ring.publish();
    place.ring.enable_callbacks();
    kick = place.ring.device_wants_kick();
  };
  if (auto* split = std::get_if<Place<SplitDriver>>(&place_))
    send(*split);
  else
    send(std::get<Place<PackedDriver>>(place_));
  waits_ = true;
  const uint64_t one = 1;
  if (kick && ::write(events_.kick.get(), &one, sizeof one) < 0) return true;  // full: it looks
  return true;
}

std::optional<NicControl::Answer> NicControl::take_answer() {
  take_foreign_event(events_.call.get());
  if (broken_) return std::nullopt;
  UsedBuffer used;
  Take taken = Take::empty;
  if (auto* split = std::get_if<Place<SplitDriver>>(&place_))
    taken = split->ring.take_used(used);
  else
    taken = std::get<Place<PackedDriver>>(place_).ring.take_used(used);
  if (taken == Take::empty) return std::nullopt;
  waits_ = false;
  broken_ = taken == Take::broken;
  if (broken_) return Answer::broken;
  uint8_t answer = 0xff;
  std::memcpy(&answer, memory_.at(answer_), 1);
  return used.bytes >= 1 && answer == kOk ? Answer::ok : Answer::refused;
}

}  // namespace sluice
