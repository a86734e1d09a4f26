#include "memory/sigbus.h"

#include <signal.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstring>
#include <mutex>
#include <utility>

#include "base/limits.h"

namespace sluice {
namespace {

// Sum: every VM port with a usual front end's regions, and one with every slot in use twice (the
// old and the new table live side by side while a table is replaced).
constexpr size_t kRangesMax = kVmPortsMax * kMemoryTableRegionsMax + 2 * kMemorySlotsMax;

struct Range {
  std::atomic<uintptr_t> begin{0};  // 0: free
  std::atomic<size_t> bytes{0};
  std::atomic<bool> tripped{false};
};

Range ranges[kRangesMax];
std::atomic<size_t> ranges_used{0};  // high-water mark of slots, bounds the handler's walk
std::atomic<uint64_t> trip_count{0};
std::mutex slots_mutex;  // taken by watch() and release(), never by the handler

bool contain(uintptr_t address) {
  const size_t used = ranges_used.load(std::memory_order_acquire);
  for (size_t i = 0; i < used; ++i) {
    const uintptr_t begin = ranges[i].begin.load(std::memory_order_acquire);
    const size_t bytes = ranges[i].bytes.load(std::memory_order_relaxed);
    if (begin == 0 || address - begin >= bytes) continue;
    // The bare system call: safe in a handler by itself, and not taken by thread sanitizer for a
    // write that races with other readers of the range, who are meant to go on.
    const long laid = ::syscall(SYS_mmap, begin, bytes, PROT_READ | PROT_WRITE,
                                MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED | MAP_NORESERVE, -1, 0L);
    if (laid == -1) return false;
    ranges[i].tripped.store(true, std::memory_order_release);
    trip_count.fetch_add(1, std::memory_order_release);
    return true;
  }
  return false;
}

void on_sigbus(int signal_number, siginfo_t* info, void*) {
  const int saved_errno = errno;
  if (!contain(reinterpret_cast<uintptr_t>(info->si_addr))) {
    // Not a guest's memory: end as without a handler, once the access is repeated.
    ::signal(signal_number, SIG_DFL);
  }
  errno = saved_errno;
}

void install_handler() {
  struct sigaction action {};
  action.sa_sigaction = on_sigbus;
  action.sa_flags = SA_SIGINFO | SA_NODEFER;
  ::sigemptyset(&action.sa_mask);
  ::sigaction(SIGBUS, &action, nullptr);
}

}  // namespace

Result<SigbusGuard> SigbusGuard::watch(void* begin, size_t bytes) {
  static std::once_flag installed;
  std::call_once(installed, install_handler);
  const std::lock_guard lock(slots_mutex);
  for (size_t i = 0; i < kRangesMax; ++i) {
    if (ranges[i].begin.load(std::memory_order_relaxed) != 0) continue;
    ranges[i].tripped.store(false, std::memory_order_relaxed);
    ranges[i].bytes.store(bytes, std::memory_order_relaxed);
    ranges[i].begin.store(reinterpret_cast<uintptr_t>(begin), std::memory_order_release);
    if (i >= ranges_used.load(std::memory_order_relaxed))
      ranges_used.store(i + 1, std::memory_order_release);
    return SigbusGuard(static_cast<int>(i));
  }
  return fail("more than {} guest memory regions are mapped in this daemon: use fewer VMs a daemon",
              kRangesMax);
}

SigbusGuard::SigbusGuard(SigbusGuard&& other) noexcept : slot_(std::exchange(other.slot_, -1)) {}

SigbusGuard& SigbusGuard::operator=(SigbusGuard&& other) noexcept {
  if (this != &other) {
    release();
    slot_ = std::exchange(other.slot_, -1);
  }
  return *this;
}

bool SigbusGuard::tripped() const {
  return slot_ >= 0 && ranges[slot_].tripped.load(std::memory_order_acquire);
}

void SigbusGuard::release() {
  if (slot_ < 0) return;
  const std::lock_guard lock(slots_mutex);
  ranges[slot_].begin.store(0, std::memory_order_release);
  slot_ = -1;
}

uint64_t sigbus_trip_count() { return trip_count.load(std::memory_order_acquire); }

}  // namespace sluice
