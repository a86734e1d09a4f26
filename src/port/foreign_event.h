// Reading an eventfd that a peer has a copy of.
#pragma once

#include <sys/uio.h>

#include <cstdint>

#include "base/fd.h"

namespace sluice {

// Empties it; false when there was nothing. O_NONBLOCK is a flag that the peer shares with us and
// can take away, and it can empty the counter between our epoll and us: ask for no waiting in the
// call itself.
inline bool take_foreign_event(int fd) {
  uint64_t value = 0;
  iovec part{&value, sizeof value};
  return ::preadv2(fd, &part, 1, -1, RWF_NOWAIT) == sizeof value;
}

}  // namespace sluice
