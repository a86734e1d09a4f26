#include "base/log.h"

#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>

#include "base/clock.h"

namespace sluice {
namespace {

std::atomic<LogLevel> lowest_level{LogLevel::info};

const char* level_name(LogLevel level) {
  switch (level) {
    case LogLevel::debug:
      return "debug";
    case LogLevel::info:
      return "info";
    case LogLevel::warning:
      return "warning";
    case LogLevel::error:
      return "error";
  }
  return "?";
}

}  // namespace

void set_log_level(LogLevel lowest_shown) { lowest_level.store(lowest_shown); }
LogLevel log_level() { return lowest_level.load(std::memory_order_relaxed); }

void log_line(LogLevel level, std::string_view text) {
  timespec now{};
  clock_gettime(CLOCK_REALTIME, &now);
  tm parts{};
  localtime_r(&now.tv_sec, &parts);
  const std::string line =
      fmt::format("{:02}:{:02}:{:02}.{:03} {}: {}\n", parts.tm_hour, parts.tm_min, parts.tm_sec,
                  now.tv_nsec / 1'000'000, level_name(level), text);
  // One write a line, so that lines of several threads do not mix. A log that cannot be written
  // must not stop the traffic.
  [[maybe_unused]] const ssize_t written = ::write(STDERR_FILENO, line.data(), line.size());
}

bool RateLimit::admit() {
  const uint64_t now_ns = monotonic_ns();
  const uint64_t earned = (now_ns - last_ns_) / interval_ns_;
  if (earned > 0) {
    tokens_ = static_cast<uint32_t>(std::min<uint64_t>(burst_, tokens_ + earned));
    last_ns_ = now_ns;
  }
  if (tokens_ == 0) return false;
  --tokens_;
  return true;
}

}  // namespace sluice
