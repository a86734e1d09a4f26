#include "vhost/connection.h"

#include <fcntl.h>

#include <cerrno>
#include <cstring>

namespace sluice {

Connection::Connection(Fd socket) : socket_(std::move(socket)) {
  const int flags = ::fcntl(socket_.get(), F_GETFL);
  if (flags >= 0) ::fcntl(socket_.get(), F_SETFL, flags | O_NONBLOCK);
}

Receive Connection::receive(ReceivedMessage& message) {
  if (stopped_) return error_.empty() ? Receive::closed : Receive::error;
  if (!header_parsed_) {
    const Fill filled = fill(header_bytes_, header_have_bytes_);
    if (filled != Fill::full) return ended(filled);
    auto header = parse_header(header_bytes_);
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

Result<void> Connection::send(std::span<const uint8_t> message) {
  for (;;) {  // bounded: repeats only when a signal came
    const ssize_t count =
        ::send(socket_.get(), message.data(), message.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
    if (count == static_cast<ssize_t>(message.size())) return {};
    if (count >= 0) return fail("the front end does not read its replies");
    if (errno == EINTR) continue;
    if (errno == EAGAIN || errno == EWOULDBLOCK)
      return fail("the front end does not read its replies");
    return fail("sending a reply failed: {}", errno_text(errno));
  }
}

}  // namespace sluice
