#include "port/fault_bell.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include <cerrno>

namespace sluice {

Result<FaultBell> FaultBell::create() {
  FaultBell bell;
  bell.event_ = Fd(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC));
  if (!bell.event_) return fail("eventfd: {}", errno_text(errno));
  return bell;
}

void FaultBell::ring() {
  const uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = ::write(event_.get(), &one, sizeof one);
}

void FaultBell::silence() {
  uint64_t value = 0;
  [[maybe_unused]] const ssize_t got = ::read(event_.get(), &value, sizeof value);
}

}  // namespace sluice
