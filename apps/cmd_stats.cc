// sluice stats: what a running daemon has carried and dropped.
#include <unistd.h>

#include <cstdio>
#include <nlohmann/json.hpp>

#include "base/drop_reason.h"
#include "commands.h"
#include "control/control_client.h"
#include "sluice_client.h"

namespace sluice {
namespace {

using nlohmann::json;

constexpr std::string_view kHelp =
    R"(sluice stats: what a running daemon has carried and dropped

  sluice stats                       a table
  sluice stats --watch               the same, again every second until interrupted
  sluice stats --json                everything, for programs; with --watch one line a second

  --control PATH                    the daemon's control socket
                                    (default /run/sluice/control.sock)

FRAMES and BYTES passed in that direction. WAKEUPS came from the other side, NOTIFIED went to it,
SAVED were not needed. BATCH is the mean number of frames handled at once: about, from a histogram.
)";

// A figure of the answer, which may come from a daemon of another version.
uint64_t figure(const json& object, const char* key) {
  const auto found = object.find(key);
  return found != object.end() && found->is_number_unsigned() ? found->get<uint64_t>() : 0;
}

std::string text_of(const json& object, const char* key) {
  const auto found = object.find(key);
  return found != object.end() && found->is_string() ? found->get<std::string>() : "?";
}

const json& list_of(const json& object, const char* key) {
  static const json empty = json::array();
  const auto found = object.find(key);
  return found != object.end() && found->is_array() ? *found : empty;
}

uint64_t drop_count(const json& queue) {
  uint64_t sum = 0;
  if (!queue.contains("drops") || !queue["drops"].is_object()) return 0;
  for (const auto& [reason, count] : queue["drops"].items()) {
    if (count.is_number_unsigned()) sum += count.get<uint64_t>();
  }
  return sum;
}

// Frames divided by the number of batches.
std::string mean_batch(const json& queue) {
  uint64_t batches = 0;
  for (const json& bucket : list_of(queue, "batch_histogram")) {
    if (bucket.is_number_unsigned()) batches += bucket.get<uint64_t>();
  }
  if (batches == 0) return "-";
  return fmt::format("{:.1f}",
                     static_cast<double>(figure(queue, "frames")) / static_cast<double>(batches));
}

std::string queue_table(const json& stats, bool with_colour) {
  std::vector<std::vector<std::string>> rows = {{"PORT", "KIND", "QUEUE", "DIRECTION", "FRAMES",
                                                 "BYTES", "DROPS", "BATCH", "WAKEUPS", "NOTIFIED",
                                                 "SAVED"}};
  for (const json& port : list_of(stats, "ports")) {
    for (const json& queue : list_of(port, "queues")) {
      rows.push_back(
          {text_of(port, "name"), text_of(port, "kind"), fmt::format("{}", figure(queue, "queue")),
           text_of(queue, "direction"), fmt::format("{}", figure(queue, "frames")),
           fmt::format("{}", figure(queue, "bytes")), fmt::format("{}", drop_count(queue)),
           mean_batch(queue), fmt::format("{}", figure(queue, "kicks")),
           fmt::format("{}", figure(queue, "notifications")),
           fmt::format("{}", figure(queue, "notifications_suppressed"))});
    }
  }
  return table_text(rows, {false, false, true, false, true, true, true, true, true, true, true},
                    with_colour);
}

// One row for each reason that happened, with its sentence.
std::string drop_table(const json& stats, bool with_colour) {
  std::vector<std::vector<std::string>> rows = {{"DROPPED AT", "DIRECTION", "COUNT", "REASON", ""}};
  for (const json& port : list_of(stats, "ports")) {
    for (const json& queue : list_of(port, "queues")) {
      if (!queue.contains("drops") || !queue["drops"].is_object()) continue;
      for (const auto& [reason, count] : queue["drops"].items()) {
        std::string sentence;
        for (size_t i = 0; i < kDropReasonCount; ++i) {
          if (kDropReasonNames[i] == reason) sentence = kDropReasonSentences[i];
        }
        rows.push_back({fmt::format("{} {}", text_of(port, "name"), figure(queue, "queue")),
                        text_of(queue, "direction"), count.dump(), reason, sentence});
      }
    }
  }
  if (rows.size() == 1) return "";
  return "\n" + table_text(rows, {false, false, true, false, false}, with_colour);
}

std::string footer(const json& stats) {
  std::string text = "\n";
  size_t index = 0;
  for (const json& worker : list_of(stats, "workers")) {
    text += fmt::format("worker {}: {} breaths, {} sleeps\n", index++, figure(worker, "breaths"),
                        figure(worker, "sleeps"));
  }
  if (stats.contains("memory") && stats["memory"].is_object()) {
    const json& memory = stats["memory"];
    text +=
        fmt::format("memory: {} KiB resident, of it up to {} KiB of guests and {} KiB of frames\n",
                    figure(memory, "rss_kib"), figure(memory, "guest_regions_kib"),
                    figure(memory, "frame_pool_kib"));
  }
  return text;
}

void print_stats(const json& stats, const ClientOptions& options) {
  if (options.as_json) {
    const int indent = options.watch ? -1 : 2;
    fmt::print("{}\n", stats.dump(indent, ' ', false, json::error_handler_t::replace));
  } else {
    const bool with_colour = output_has_colour();
    // A terminal is drawn over, anything else gets one table after the other.
    if (options.watch && isatty(STDOUT_FILENO) != 0) fmt::print("\x1b[H\x1b[2J");
    fmt::print("{}{}{}", queue_table(stats, with_colour), drop_table(stats, with_colour),
               footer(stats));
  }
  std::fflush(stdout);
}

}  // namespace

int cmd_stats(const Arguments& arguments) {
  const Result<ClientOptions> options = parse_client_arguments(arguments, /*takes_watch=*/true);
  if (!options) return report_failure("stats", options.error());
  if (options->wants_help) {
    fmt::print("{}", kHelp);
    return kExitFine;
  }
  do {
    const Result<json> stats = ask_daemon(options->control_path, "stats");
    if (!stats) return report_failure("stats", stats.error());
    print_stats(*stats, *options);
    if (options->watch) sleep(1);
  } while (options->watch && !std::ferror(stdout));
  return kExitFine;
}

}  // namespace sluice
