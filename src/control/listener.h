// Unix stream sockets by path: listening on one, connecting to one.
//
// listen_unix() takes a path only when nobody loses by it:
//
//   what is there                      what happens
//   nothing                            bound
//   a socket that nobody listens on    replaced (a daemon died and left it)
//   a socket that somebody listens on  refused, with the process that does
//   anything else                      refused, and never deleted
//   no folder, no permission           refused
//
// The socket file never has wider permissions than asked for, not even for a moment. On close it is
// removed, unless somebody has put another file in its place.
//
//   Result<UnixListener> listener = listen_unix("/run/sluice/vm0.sock", 0660, "kvm");
//   Acceptor acceptor(loop, std::move(*listener), [&](Fd socket) { … });
#pragma once

#include <sys/types.h>

#include <functional>
#include <string>

#include "base/fd.h"
#include "base/log.h"
#include "base/result.h"
#include "control/event_loop.h"

namespace sluice {

class UnixListener {
 public:
  UnixListener(Fd socket, std::string path);  // bound and listening; use listen_unix()
  UnixListener(UnixListener&&) = default;
  UnixListener& operator=(UnixListener&&) = delete;
  ~UnixListener();

  int fd() const { return socket_.get(); }
  const std::string& path() const { return path_; }

 private:
  Fd socket_;
  std::string path_;
  dev_t device_ = 0;
  ino_t inode_ = 0;
};

// `mode`: permission bits. `group`: a group's name, or empty for the process's own.
Result<UnixListener> listen_unix(const std::string& path, uint32_t mode, const std::string& group);

// A connected, non-blocking socket. Never waits: a listener whose queue is full is a failure, too.
Result<Fd> connect_unix(const std::string& path);

// Accepts from a listener and hands over each non-blocking socket. When descriptors have run out it
// rests for a moment, instead of being woken without end by a connection that it cannot take.
class Acceptor {
 public:
  Acceptor(EventLoop& loop, UnixListener listener, std::function<void(Fd)> on_accepted);
  ~Acceptor();
  Acceptor(const Acceptor&) = delete;
  Acceptor& operator=(const Acceptor&) = delete;

  Result<void> start();
  const std::string& path() const { return listener_.path(); }

 private:
  void accept_some();
  void rest();

  EventLoop& loop_;
  UnixListener listener_;
  std::function<void(Fd)> on_accepted_;
  EventLoop::TimerId rest_timer_ = 0;
  RateLimit limit_;
};

}  // namespace sluice
