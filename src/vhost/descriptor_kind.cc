#include "vhost/descriptor_kind.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <string_view>

namespace sluice {
namespace {

Result<void> make_non_blocking(const Fd& fd) {
  const int flags = ::fcntl(fd.get(), F_GETFL);
  if (flags < 0 || ::fcntl(fd.get(), F_SETFL, flags | O_NONBLOCK) != 0)
    return fail("making a descriptor non-blocking failed: {}", errno_text(errno));
  if ((flags & O_ACCMODE) == O_RDONLY) return fail("the descriptor cannot be written");
  return {};
}

}  // namespace

DescriptorKind descriptor_kind(const Fd& fd) {
  struct stat status {};
  if (::fstat(fd.get(), &status) != 0) return DescriptorKind::other;
  if (S_ISFIFO(status.st_mode)) return DescriptorKind::pipe;
  if (S_ISSOCK(status.st_mode)) return DescriptorKind::socket;
  if ((status.st_mode & S_IFMT) != 0) return DescriptorKind::other;
  // An anonymous inode: an eventfd, but also an epoll, a timer, a signal descriptor.
  char name[64] = {};
  const std::string path = fmt::format("/proc/self/fd/{}", fd.get());
  const ssize_t bytes = ::readlink(path.c_str(), name, sizeof name - 1);
  if (bytes < 0) return DescriptorKind::event;  // no /proc here; reading any of them is harmless
  const std::string_view target(name, static_cast<size_t>(bytes));
  return target == "anon_inode:[eventfd]" ? DescriptorKind::event : DescriptorKind::other;
}

Result<void> prepare_kick(const Fd& fd) {
  if (descriptor_kind(fd) != DescriptorKind::event)
    return fail("the kick descriptor is no eventfd");
  return make_non_blocking(fd);
}

Result<void> prepare_signal(const Fd& fd) {
  if (descriptor_kind(fd) == DescriptorKind::other)
    return fail("the descriptor is no eventfd, pipe or socket");
  return make_non_blocking(fd);
}

}  // namespace sluice
