// Containment of SIGBUS: a front end that truncates the file behind its guest's RAM must not end a
// daemon that serves others.
//
// A file can shrink at any time after its size was checked, and the next access then raises SIGBUS.
// The handler looks the address up among the watched ranges, lays zeroed private memory over the
// whole range, marks the range as tripped and returns: the access goes on, harmlessly, in memory
// that is nobody's. The owner finds the mark after its burst and drops the guest. An address
// outside every watched range is our own bug, and the process ends as it would have.
//
// The handler uses only async-signal-safe calls and lock-free words.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/result.h"

namespace sluice {

class SigbusGuard {
 public:
  // Watches [begin, begin + bytes), page aligned. Installs the handler on first use.
  static Result<SigbusGuard> watch(void* begin, size_t bytes);
  SigbusGuard() = default;
  SigbusGuard(SigbusGuard&& other) noexcept;
  SigbusGuard& operator=(SigbusGuard&& other) noexcept;
  ~SigbusGuard() { release(); }

  bool tripped() const;
  // Ends the watch; call before the range is unmapped.
  void release();

 private:
  explicit SigbusGuard(int slot) : slot_(slot) {}
  int slot_ = -1;
};

// How many ranges have tripped so far in this process: a cheap "has anything happened?".
uint64_t sigbus_trip_count();

}  // namespace sluice
