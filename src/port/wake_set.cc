#include "port/wake_set.h"

#include <cerrno>

namespace sluice {

Result<WakeSet> WakeSet::create() {
  Fd epoll(::epoll_create1(EPOLL_CLOEXEC));
  if (!epoll) return fail("epoll_create1: {}", errno_text(errno));
  return WakeSet(std::move(epoll));
}

Result<void> WakeSet::add(int fd, uint32_t events, uint32_t key) {
  epoll_event event{};
  event.events = events;
  event.data.u32 = key;
  if (::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event) != 0)
    return fail("cannot watch descriptor {}: {}", fd, errno_text(errno));
  return {};
}

void WakeSet::modify(int fd, uint32_t events, uint32_t key) {
  epoll_event event{};
  event.events = events;
  event.data.u32 = key;
  ::epoll_ctl(epoll_.get(), EPOLL_CTL_MOD, fd, &event);
}

void WakeSet::remove(int fd) { ::epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, fd, nullptr); }

bool WakeSet::next(uint32_t& key, uint32_t& events) {
  epoll_event event{};
  if (::epoll_wait(epoll_.get(), &event, 1, 0) != 1) return false;
  key = event.data.u32;
  events = event.events;
  return true;
}

}  // namespace sluice
