// The operator's log: one line an event, on standard error, with a time and a level.
//
// For events that a person cares about (a front end connected, a queue broke), not for packets.
// Call it from the control thread; what foreign data can cause again and again must be limited by
// the caller, for which RateLimit is there.
//
//   log_info("vm0: front end connected");
//   if (limit_.admit()) log_warning("vm0: {} malformed messages", n);
#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <string_view>
#include <utility>

namespace sluice {

enum class LogLevel : uint8_t { debug, info, warning, error };

void set_log_level(LogLevel lowest_shown);
LogLevel log_level();
void log_line(LogLevel level, std::string_view text);

template <typename... Args>
void log_at(LogLevel level, fmt::format_string<Args...> format, Args&&... args) {
  if (level < log_level()) return;
  log_line(level, fmt::format(format, std::forward<Args>(args)...));
}
template <typename... Args>
void log_debug(fmt::format_string<Args...> format, Args&&... args) {
  log_at(LogLevel::debug, format, std::forward<Args>(args)...);
}
template <typename... Args>
void log_info(fmt::format_string<Args...> format, Args&&... args) {
  log_at(LogLevel::info, format, std::forward<Args>(args)...);
}
template <typename... Args>
void log_warning(fmt::format_string<Args...> format, Args&&... args) {
  log_at(LogLevel::warning, format, std::forward<Args>(args)...);
}
template <typename... Args>
void log_error(fmt::format_string<Args...> format, Args&&... args) {
  log_at(LogLevel::error, format, std::forward<Args>(args)...);
}

// Admits `burst` events, and one more each `interval_ns` after that.
class RateLimit {
 public:
  explicit RateLimit(uint32_t burst = 10, uint64_t interval_ns = 1'000'000'000)
      : tokens_(burst), burst_(burst), interval_ns_(interval_ns) {}
  bool admit();

 private:
  uint32_t tokens_;
  uint32_t burst_;
  uint64_t interval_ns_;
  uint64_t last_ns_ = 0;
};

}  // namespace sluice
