#include "xdp/helpers_text.h"

#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <random>
#include <span>
#include <string>
#include <string_view>

#include "base/log.h"

namespace sluice {
namespace {

constexpr size_t kTextBytesMax = 1024;    // of one text, its end included
constexpr size_t kFormatBytesMax = 4096;  // of a format; the verifier has seen that it ends
constexpr uint32_t kSnprintfArgumentsMax = 12;
constexpr size_t kPageBytes = 4096;

uint64_t error(int number) { return static_cast<uint64_t>(-int64_t{number}); }

// The string at `address`, as far as it can be read. The kernel does the reading: where there is no
// memory it says so. Page by page, since it stops at the first piece that is not there.
size_t read_string(uint64_t address, std::span<char> out) {
  size_t count = 0;
  while (count < out.size()) {
    const uint64_t at = address + count;
    const size_t wanted = std::min<size_t>(out.size() - count, kPageBytes - at % kPageBytes);
    const iovec to{out.data() + count, wanted};
    const iovec from{reinterpret_cast<void*>(at), wanted};
    const ssize_t got = ::process_vm_readv(::getpid(), &to, 1, &from, 1, 0);
    if (got <= 0) return 0;
    const char* begin = out.data() + count;
    if (const void* end = std::memchr(begin, 0, static_cast<size_t>(got)))
      return count + static_cast<size_t>(static_cast<const char*>(end) - begin);
    count += static_cast<size_t>(got);
  }
  return count;
}

// One text as it grows; what has no room is only counted, as snprintf does.
class Text {
 public:
  void add(std::string_view part) {
    if (bytes_ < text_.size()) {
      const size_t room = text_.size() - bytes_;
      std::copy_n(part.begin(), std::min(part.size(), room), text_.begin() + bytes_);
    }
    bytes_ += part.size();
  }
  size_t bytes() const { return bytes_; }
  std::string_view kept() const { return {text_.data(), std::min(bytes_, text_.size())}; }

 private:
  std::array<char, kTextBytesMax> text_;
  size_t bytes_ = 0;
};

// What follows a %.
struct Directive {
  char flags[5] = {};  // a set of "0+- "
  uint32_t width = 0;
  uint32_t longs = 0;  // how many l
  char kind = 0;
};

// 32 bits that tell pointers apart and say nothing of where they point.
uint32_t hashed(uint64_t pointer) {
  static const uint64_t secret = [] {
    std::random_device source;
    return uint64_t{source()} << 32 | source();
  }();
  return static_cast<uint32_t>((pointer ^ secret) * 0x9e3779b97f4a7c15u >> 32);
}

class Formatter {
 public:
  Formatter(std::string_view format, std::span<const uint64_t> arguments)
      : rest_(format), arguments_(arguments) {}

  // 0, or a negative number of the kernel's.
  int run() {
    while (!rest_.empty()) {
      const char c = take();
      const auto byte = static_cast<unsigned char>(c);
      if (byte < 0x80 && !std::isprint(byte) && !std::isspace(byte)) return -EINVAL;
      if (c != '%') {
        text_.add({&c, 1});
      } else if (peek() == '%') {
        text_.add({&c, 1});
        take();
      } else if (!directive()) {
        return -EINVAL;
      }
    }
    return 0;
  }
  const Text& text() const { return text_; }

 private:
  char peek() const { return rest_.empty() ? '\0' : rest_.front(); }
  char take() {
    const char c = peek();
    if (!rest_.empty()) rest_.remove_prefix(1);
    return c;
  }

  bool directive() {
    if (arguments_.empty()) return false;
    const uint64_t argument = arguments_.front();
    arguments_ = arguments_.subspan(1);
    Directive d;
    while (std::strchr("0+- ", peek()) != nullptr && peek() != '\0') {
      const char flag = take();
      if (std::strchr(d.flags, flag) == nullptr) d.flags[std::strlen(d.flags)] = flag;
    }
    // Wider than a whole text is no wider.
    while (std::isdigit(static_cast<unsigned char>(peek())))
      d.width =
          std::min<uint32_t>(d.width * 10 + static_cast<uint32_t>(take() - '0'), kTextBytesMax);
    while (peek() == 'l' && d.longs < 2) take(), ++d.longs;
    d.kind = take();
    if (d.longs > 0 && std::strchr("diuxX", d.kind) == nullptr) return false;
    return write(d, argument);
  }

  bool write(const Directive& d, uint64_t argument) {
    const bool is_long = d.longs > 0;
    switch (d.kind) {
      case 'd':
      case 'i':
        return print(d, "lld",
                     is_long ? static_cast<long long>(argument) : static_cast<int32_t>(argument));
      case 'u':
        return print(d, "llu", is_long ? argument : static_cast<uint32_t>(argument));
      case 'x':
        return print(d, "llx", is_long ? argument : static_cast<uint32_t>(argument));
      case 'X':
        return print(d, "llX", is_long ? argument : static_cast<uint32_t>(argument));
      case 'c':
        return print(d, "c", static_cast<int>(argument & 0xff));
      case 's': {
        std::array<char, kTextBytesMax> string;
        string[read_string(argument, std::span(string).first(kTextBytesMax - 1))] = '\0';
        return print(d, "s", string.data());
      }
      case 'p':
        return write_pointer(argument);
      default:
        return false;
    }
  }

  // Null is no secret.
  bool write_pointer(uint64_t pointer) {
    const auto next = static_cast<unsigned char>(peek());
    uint64_t shown = pointer == 0 ? 0 : hashed(pointer);
    if (next == 'x') {
      take();
      shown = pointer;
    } else if (next != '\0' && !std::isspace(next) && !std::ispunct(next)) {
      return false;  // the kernel's own extensions: symbols, addresses of networks
    }
    return print({.flags = "0", .width = 16}, "llx", shown);
  }

  template <typename T>
  bool print(const Directive& d, const char* conversion, T value) {
    char format[16];
    std::snprintf(format, sizeof format, "%%%s*%s", d.flags, conversion);
    char out[kTextBytesMax + 1];
    const int bytes = std::snprintf(out, sizeof out, format, static_cast<int>(d.width), value);
    if (bytes < 0) return false;
    text_.add({out, std::min(static_cast<size_t>(bytes), sizeof out - 1)});
    return true;
  }

  std::string_view rest_;
  std::span<const uint64_t> arguments_;
  Text text_;
};

// Bytes before the end of the text, or `bytes_max`: there is none.
size_t text_bytes(uint64_t address, size_t bytes_max) {
  return ::strnlen(reinterpret_cast<const char*>(address), bytes_max);
}

void log_text(std::string_view text) {
  thread_local RateLimit limit(20, 200'000'000);
  thread_local uint64_t unsaid = 0;
  if (!limit.admit()) {
    ++unsaid;
    return;
  }
  while (!text.empty() && text.back() == '\n') text.remove_suffix(1);
  // What a guest sent may be in it, and nothing of that may look like a line of ours.
  std::string shown(text);
  for (char& c : shown)
    if (!std::isprint(static_cast<unsigned char>(c))) c = '.';
  if (unsaid > 0) log_info("xdp: {} lines of programs were too many and are not shown", unsaid);
  unsaid = 0;
  log_info("xdp: {}", shown);
}

}  // namespace

// (format, its bytes, up to three values)
uint64_t helper_trace_printk(uint64_t r1, uint64_t r2, uint64_t r3, uint64_t r4, uint64_t r5) {
  const auto format_bytes = static_cast<uint32_t>(r2);
  const size_t bytes = text_bytes(r1, format_bytes);
  if (bytes == format_bytes) return error(EINVAL);
  const uint64_t arguments[] = {r3, r4, r5};
  Formatter formatter({reinterpret_cast<const char*>(r1), bytes}, arguments);
  if (const int status = formatter.run(); status != 0) return error(-status);
  log_text(formatter.text().kept());
  return formatter.text().bytes();
}

// (text, its room, format, values, their bytes): the bytes of the whole text and its end, also if
// there was less room.
uint64_t helper_snprintf(uint64_t r1, uint64_t r2, uint64_t r3, uint64_t r4, uint64_t r5) {
  const auto room = static_cast<uint32_t>(r2), value_bytes = static_cast<uint32_t>(r5);
  if (value_bytes % 8 != 0 || value_bytes > kSnprintfArgumentsMax * 8 ||
      (value_bytes > 0 && r4 == 0))
    return error(EINVAL);
  std::array<uint64_t, kSnprintfArgumentsMax> values{};
  if (value_bytes > 0) std::memcpy(values.data(), reinterpret_cast<const void*>(r4), value_bytes);
  const size_t bytes = text_bytes(r3, kFormatBytesMax);
  if (bytes == kFormatBytesMax) return error(EINVAL);
  Formatter formatter({reinterpret_cast<const char*>(r3), bytes},
                      std::span(values).first(value_bytes / 8));
  if (const int status = formatter.run(); status != 0) return error(-status);
  if (room > 0) {
    const std::string_view text = formatter.text().kept().substr(0, room - 1);
    auto* out = reinterpret_cast<char*>(r1);
    std::copy(text.begin(), text.end(), out);
    out[text.size()] = '\0';
  }
  return formatter.text().bytes() + 1;
}

// (first, its bytes, second): -1, 0 or 1.
uint64_t helper_strncmp(uint64_t r1, uint64_t r2, uint64_t r3, uint64_t, uint64_t) {
  const int order = std::strncmp(reinterpret_cast<const char*>(r1),
                                 reinterpret_cast<const char*>(r3), static_cast<uint32_t>(r2));
  return order == 0 ? 0 : order < 0 ? static_cast<uint64_t>(int64_t{-1}) : 1;
}

}  // namespace sluice
