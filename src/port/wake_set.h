// WakeSet: the descriptors that can wake one queue, behind a single descriptor.
//
// A worker watches one descriptor a queue for the queue's whole life; what is behind it (a guest's
// kick eventfd, a TAP) comes and goes with the front end. It is an epoll set of its own.
#pragma once

#include <sys/epoll.h>

#include "base/fd.h"
#include "base/result.h"

namespace sluice {

class WakeSet {
 public:
  static Result<WakeSet> create();
  WakeSet() = default;

  int fd() const { return epoll_.get(); }
  // Level-triggered unless events say EPOLLET. `key` comes back from next().
  Result<void> add(int fd, uint32_t events, uint32_t key);
  void modify(int fd, uint32_t events, uint32_t key);
  void remove(int fd);
  // One pending event, without waiting: its key and events, or false when there is none.
  bool next(uint32_t& key, uint32_t& events);

 private:
  explicit WakeSet(Fd epoll) : epoll_(std::move(epoll)) {}
  Fd epoll_;
};

}  // namespace sluice
