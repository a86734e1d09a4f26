#include "control/listener.h"

#include <grp.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#include <cerrno>
#include <cstring>

#include "base/assert.h"
#include "control/option_schema.h"

namespace sluice {
namespace {

// Connections that wait to be accepted. Front ends come one at a time; a client beyond this is told
// so by its own connect().
constexpr int kBacklog = 16;
// Taken in one go, so that one busy socket does not keep the loop from the others.
constexpr int kAcceptsMax = 8;
constexpr uint64_t kRestNs = 200'000'000;

struct Address {
  sockaddr_un name{};
  socklen_t bytes = sizeof(sockaddr_un);
  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&name); }
};

Result<Address> address_of(const std::string& path) {
  Address address;
  address.name.sun_family = AF_UNIX;
  if (path.empty() || path.size() >= sizeof address.name.sun_path) {
    return usage_failure("socket path {} has {} bytes: give one of 1 to {}", printable(path),
                         path.size(), sizeof address.name.sun_path - 1);
  }
  std::memcpy(address.name.sun_path, path.data(), path.size());
  return address;
}

Result<Fd> new_socket() {
  Fd socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!socket) return fail("no socket: {}", errno_text(errno));
  return socket;
}

// "process 12", of whoever listens at the other end.
std::string listener_process(int connected_fd) {
  ucred peer{};
  socklen_t bytes = sizeof peer;
  const bool known = getsockopt(connected_fd, SOL_SOCKET, SO_PEERCRED, &peer, &bytes) == 0;
  return known && peer.pid > 0 ? fmt::format("process {}", peer.pid) : "another process";
}

// Makes room for a new socket file, or says why there is none.
Result<void> clear_path(const std::string& path, const Address& address) {
  struct stat file {};
  if (lstat(path.c_str(), &file) != 0) return {};  // bind() has the word on folders and permissions
  if (!S_ISSOCK(file.st_mode)) {
    return fail("{} exists and is no socket: it is left alone, choose another path", path);
  }
  Result<Fd> probe = new_socket();
  if (!probe) return probe.error();
  const int connected = ::connect(probe->get(), address.get(), address.bytes);
  // EAGAIN: somebody listens, but has not accepted for long.
  if (connected == 0 || errno == EAGAIN) {
    return fail("socket {} is in use by {}: stop it, or choose another path", path,
                connected == 0 ? listener_process(probe->get()) : "another process");
  }
  if (errno != ECONNREFUSED) {
    return fail("socket {} exists and cannot be tried: {}: remove it, or choose another path", path,
                errno_text(errno));
  }
  if (unlink(path.c_str()) != 0 && errno != ENOENT) {
    return fail("socket {} was left by a dead process and cannot be removed: {}", path,
                errno_text(errno));
  }
  return {};
}

Failure bind_failure(const std::string& path, int error) {
  const size_t slash = path.rfind('/');
  const std::string folder = slash == std::string::npos ? "." : path.substr(0, slash + 1);
  switch (error) {
    case ENOENT:
      return fail(
          "socket {}: there is no folder {}: create it (mkdir -p {}), or choose another path", path,
          folder, folder);
    case ENOTDIR:
      return fail("socket {}: {} is no folder: choose another path", path, folder);
    case EACCES:
    case EPERM:
      return fail(
          "socket {}: no permission to create it in {}: run as a user that may write there, "
          "or choose another path",
          path, folder);
    case EADDRINUSE:
      return fail("socket {} was taken by another process just now: choose another path", path);
    default:
      return fail("socket {} cannot be created: {}", path, errno_text(error));
  }
}

Result<gid_t> group_id(const std::string& group) {
  errno = 0;
  const struct group* found = getgrnam(group.c_str());
  if (found) return found->gr_gid;
  return usage_failure("socket-group={}: there is no such group: create it, or give another",
                       printable(group));
}

// The umask may have taken bits away at bind(); they are given back once the group is right.
Result<void> set_permissions(const std::string& path, uint32_t mode, const std::string& group) {
  if (!group.empty()) {
    const Result<gid_t> gid = group_id(group);
    if (!gid) return gid.error();
    if (lchown(path.c_str(), static_cast<uid_t>(-1), *gid) != 0) {
      return fail("socket {} cannot be given to group {}: {}: run as root or as a member of it",
                  path, group, errno_text(errno));
    }
  }
  if (chmod(path.c_str(), mode) != 0) {
    return fail("socket {} cannot be given mode {:04o}: {}", path, mode, errno_text(errno));
  }
  return {};
}

}  // namespace

UnixListener::UnixListener(Fd socket, std::string path)
    : socket_(std::move(socket)), path_(std::move(path)) {
  struct stat file {};
  if (lstat(path_.c_str(), &file) == 0) {
    device_ = file.st_dev;
    inode_ = file.st_ino;
  }
}

UnixListener::~UnixListener() {
  if (!socket_) return;
  struct stat file {};
  const bool is_ours = lstat(path_.c_str(), &file) == 0 && file.st_dev == device_ &&
                       file.st_ino == inode_ && S_ISSOCK(file.st_mode);
  if (is_ours) unlink(path_.c_str());
}

Result<UnixListener> listen_unix(const std::string& path, uint32_t mode, const std::string& group) {
  const Result<Address> address = address_of(path);
  if (!address) return address.error();
  if (!group.empty()) {
    if (const Result<gid_t> gid = group_id(group); !gid) return gid.error();
  }
  const Result<void> cleared = clear_path(path, *address);
  if (!cleared) return cleared.error();
  Result<Fd> socket = new_socket();
  if (!socket) return socket.error();
  // On Linux the socket's own mode becomes that of its file at bind().
  if (fchmod(socket->get(), mode) != 0) {
    return fail("socket {} cannot be given mode {:04o}: {}", path, mode, errno_text(errno));
  }
  if (bind(socket->get(), address->get(), address->bytes) != 0) return bind_failure(path, errno);
  UnixListener listener(std::move(*socket), path);  // from here on it removes the file
  const Result<void> permitted = set_permissions(path, mode, group);
  if (!permitted) return permitted.error();
  if (listen(listener.fd(), kBacklog) != 0) {
    return fail("socket {} cannot be listened on: {}", path, errno_text(errno));
  }
  return listener;
}

Result<Fd> connect_unix(const std::string& path) {
  const Result<Address> address = address_of(path);
  if (!address) return address.error();
  Result<Fd> socket = new_socket();
  if (!socket) return socket.error();
  if (::connect(socket->get(), address->get(), address->bytes) == 0) return socket;
  switch (errno) {
    case ENOENT:
      return fail("there is no socket {}", path);
    case ECONNREFUSED:
      return fail("nobody listens on {}", path);
    case EAGAIN:
      return fail("the listener of {} has too many connections waiting", path);
    default:
      return fail("{} cannot be connected to: {}", path, errno_text(errno));
  }
}

Acceptor::Acceptor(EventLoop& loop, UnixListener listener, std::function<void(Fd)> on_accepted)
    : loop_(loop), listener_(std::move(listener)), on_accepted_(std::move(on_accepted)) {}

Acceptor::~Acceptor() {
  loop_.unwatch(listener_.fd());
  loop_.cancel_timer(rest_timer_);
}

Result<void> Acceptor::start() {
  return loop_.watch(listener_.fd(), EPOLLIN, [this](uint32_t) { accept_some(); });
}

void Acceptor::accept_some() {
  for (int i = 0; i < kAcceptsMax; ++i) {
    Fd socket(accept4(listener_.fd(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
    if (socket) {
      on_accepted_(std::move(socket));
      continue;
    }
    if (errno == EINTR || errno == ECONNABORTED) continue;
    if (errno == EAGAIN) return;
    if (limit_.admit()) {
      log_warning("{}: a connection cannot be accepted: {}: raise the limit of open files",
                  listener_.path(), errno_text(errno));
    }
    rest();
    return;
  }
}

void Acceptor::rest() {
  loop_.unwatch(listener_.fd());
  rest_timer_ = loop_.add_timer(kRestNs, [this] {
    rest_timer_ = 0;
    // Watching needs kernel memory; when even that fails, another rest is all there is to do.
    if (!start()) rest();
  });
}

}  // namespace sluice
