#include "vhost/connection.h"

#include <fcntl.h>

#include <cerrno>
#include <cstring>

namespace sluice {

Connection::Connection(Fd socket, Expects expects) : socket_(std::move(socket)), expects_(expects) {
  const int flags = ::fcntl(socket_.get(), F_GETFL);
  if (flags >= 0) ::fcntl(socket_.get(), F_SETFL, flags | O_NONBLOCK);
}

Receive Connection::receive(ReceivedMessage& message) {
  if (stopped_) return error_.empty() ? Receive::closed : Receive::error;
  if (!header_parsed_) {
    const Fill filled = fill(header_bytes_, header_have_bytes_);
    if (filled != Fill::full) return ended(filled);
    auto header = expects_ == Expects::requests ? parse_header(header_bytes_)
                                                : parse_reply_header(header_bytes_);
    if (!header) return stop(header.error().text);
    partial_.header = *header;
    partial_.payload.resize(header->payload_bytes);  // bounded by kPayloadBytesMax: parse_header()
    header_parsed_ = true;
  }
  if (!partial_.payload.empty()) {
    const Fill filled = fill(partial_.payload, payload_have_bytes_);
    if (filled != Fill::full) return ended(filled);
  }
  message = std::move(partial_);
  partial_ = ReceivedMessage{};
  header_have_bytes_ = 0;
  payload_have_bytes_ = 0;
  header_parsed_ = false;
  return Receive::message;
}

// Never asks for bytes behind the current message, so descriptors always belong to it: the kernel
// hands them out with the first byte that they were sent with.
Connection::Fill Connection::fill(std::span<uint8_t> buffer, size_t& have_bytes) {
  while (have_bytes < buffer.size()) {  // bounded: each round adds a byte or returns
    iovec bytes{buffer.data() + have_bytes, buffer.size() - have_bytes};
    alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int) * kMessageFdsMax)];
    msghdr received{};
    received.msg_iov = &bytes;
    received.msg_iovlen = 1;
    received.msg_control = control;
    received.msg_controllen = sizeof control;
    const ssize_t count = ::recvmsg(socket_.get(), &received, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return Fill::partial;
    if (count < 0 && errno == ECONNRESET) return Fill::end;
    if (count < 0) {
      error_ = "reading failed: " + errno_text(errno);
      return Fill::failed;
    }
    take_descriptors(received);
    if (count == 0) return Fill::end;
    have_bytes += static_cast<size_t>(count);
  }
  return Fill::full;
}

void Connection::take_descriptors(msghdr& received) {
  // CTRUNC: there were more than fit, or than our process may open; the kernel closed those.
  if ((received.msg_flags & MSG_CTRUNC) != 0) partial_.fds_lost = true;
  for (cmsghdr* part = CMSG_FIRSTHDR(&received); part != nullptr;
       part = CMSG_NXTHDR(&received, part)) {  // bounded by the size of `control`
    if (part->cmsg_level != SOL_SOCKET || part->cmsg_type != SCM_RIGHTS) continue;
    const size_t count = (part->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (size_t i = 0; i < count; ++i) {
      int number = -1;
      std::memcpy(&number, CMSG_DATA(part) + i * sizeof number, sizeof number);
      Fd fd(number);
      if (partial_.fds.size() < kMessageFdsMax) {
        partial_.fds.push_back(std::move(fd));
      } else {
        partial_.fds_lost = true;
      }
    }
  }
}

Receive Connection::stop(std::string reason) {
  stopped_ = true;
  error_ = std::move(reason);
  partial_ = ReceivedMessage{};
  return Receive::error;
}

Receive Connection::ended(Fill fill) {
  switch (fill) {
    case Fill::full:
    case Fill::partial:
      return Receive::need_more;
    case Fill::failed:
      return stop(error_);
    case Fill::end:
      break;
  }
  if (header_have_bytes_ > 0) return stop("the connection ended in the middle of a message");
  stopped_ = true;
  partial_ = ReceivedMessage{};
  return Receive::closed;
}

Result<void> Connection::send(std::span<const uint8_t> message, std::span<const int> fds) {
  SLUICE_ASSERT(fds.size() <= kMessageFdsMax);
  iovec bytes{const_cast<uint8_t*>(message.data()), message.size()};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int) * kMessageFdsMax)] = {};
  msghdr out{};
  out.msg_iov = &bytes;
  out.msg_iovlen = 1;
  if (!fds.empty()) {
    out.msg_control = control;
    out.msg_controllen = CMSG_SPACE(fds.size_bytes());
    cmsghdr* part = CMSG_FIRSTHDR(&out);
    part->cmsg_level = SOL_SOCKET;
    part->cmsg_type = SCM_RIGHTS;
    part->cmsg_len = CMSG_LEN(fds.size_bytes());
    std::memcpy(CMSG_DATA(part), fds.data(), fds.size_bytes());
  }
  const char* who = expects_ == Expects::requests ? "front" : "back";
  const char* what = expects_ == Expects::requests ? "replies" : "messages";
  for (;;) {  // bounded: repeats only when a signal came
    const ssize_t count = ::sendmsg(socket_.get(), &out, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (count == static_cast<ssize_t>(message.size())) return {};
    if (count >= 0) return fail("the {} end does not read its {}", who, what);
    if (errno == EINTR) continue;
    if (errno == EAGAIN || errno == EWOULDBLOCK)
      return fail("the {} end does not read its {}", who, what);
    peer_has_gone_ = errno == EPIPE || errno == ECONNRESET;
    return fail("sending failed: {}", errno_text(errno));
  }
}

void Connection::end() {
  ::shutdown(socket_.get(), SHUT_RDWR);
  stopped_ = true;
}

}  // namespace sluice
