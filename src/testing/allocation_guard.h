// AllocationGuard: notices memory that is allocated by this thread while it lives.
//
// Nothing allocates on the data path after start: tests prove it by running the data path inside a
// guard. Guards nest; each sees what happens during its own life. Under a sanitizer the guard hooks
// into the sanitizer's allocator, else it replaces operator new.
//
//   AllocationGuard guard;               // aborts at the first allocation
//   queue.pop(spans, chain);
//
//   AllocationGuard guard(AllocationGuard::Mode::count);
//   EXPECT_EQ(guard.allocations(), 0u);
#pragma once

#include <cstddef>
#include <cstdint>

namespace sluice {

class AllocationGuard {
 public:
  enum class Mode : uint8_t { abort, count };
  explicit AllocationGuard(Mode mode = Mode::abort);
  ~AllocationGuard();
  AllocationGuard(const AllocationGuard&) = delete;
  AllocationGuard& operator=(const AllocationGuard&) = delete;

  // What this thread has allocated since the guard was made.
  size_t allocations() const;

 private:
  Mode mode_;
  size_t allocations_before_;
};

}  // namespace sluice
