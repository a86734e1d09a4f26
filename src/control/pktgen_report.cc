// What a run of pktgen says of itself: as JSON and as a table.
#include <fmt/ranges.h>

#include "control/pktgen.h"
#include "control/text_table.h"

namespace sluice {
namespace {

// What no generator made, or another one.
uint64_t frames_foreign(const PktgenReport& report) {
  return report.figures.frames_foreign + report.figures.numbers.bad_flow;
}

double per_second(uint64_t frames, double seconds) {
  return seconds > 0 ? static_cast<double>(frames) / seconds : 0;
}

// Frames came from the first burst to the last one; the time before and behind is not theirs.
double receive_seconds(const PktgenReport& report) {
  return static_cast<double>(report.figures.receive_ns_last - report.figures.receive_ns_first) /
         1e9;
}

uint64_t frames_moved(const PktgenReport& report) {
  return report.figures.frames_sent + report.figures.frames_received;
}

double cpu_ns_per_frame(const PktgenReport& report) {
  const uint64_t frames = frames_moved(report);
  return frames == 0 ? 0 : static_cast<double>(report.cpu_ns) / static_cast<double>(frames);
}

nlohmann::json latency_json(const Histogram& latency) {
  return {{"count", latency.count()},          {"min", latency.min()},
          {"p50", latency.percentile(0.5)},    {"p99", latency.percentile(0.99)},
          {"p999", latency.percentile(0.999)}, {"max", latency.max()}};
}

std::string microseconds(uint64_t ns) {
  return fmt::format("{:.1f} us", static_cast<double>(ns) / 1e3);
}

}  // namespace

std::string_view mode_name(GeneratorMode mode) {
  switch (mode) {
    case GeneratorMode::txonly:
      return "txonly";
    case GeneratorMode::rxonly:
      return "rxonly";
    case GeneratorMode::echo:
      return "echo";
    case GeneratorMode::reflect:
      return "reflect";
    case GeneratorMode::latency:
      return "latency";
  }
  return "";
}

uint64_t frames_lost(const PktgenReport& report) {
  const NumberCounts& numbers = report.figures.numbers;
  if (!is_closed_loop(report.options.generator.mode)) return numbers.lost;
  const uint64_t came = numbers.received - numbers.duplicates - numbers.bad_flow - numbers.too_late;
  return report.figures.frames_sent - std::min(report.figures.frames_sent, came);
}

nlohmann::json pktgen_json(const PktgenReport& report) {
  const GeneratorOptions& generator = report.options.generator;
  const GeneratorFigures& figures = report.figures;
  nlohmann::json document = {
      {"mode", mode_name(generator.mode)},
      {"format", report.options.nic.packed ? "packed" : "split"},
      {"frame_bytes", generator.frame.frame_bytes},
      {"burst_frames", generator.burst_frames},
      {"negotiated", report.negotiated},
      {"seconds", report.seconds},
      {"frames_sent", figures.frames_sent},
      {"frames_sent_per_s", per_second(figures.frames_sent, report.seconds)},
      {"frames_dropped", report.frames_dropped},
      {"frames_unused", report.frames_unused},
      {"frames_received", figures.frames_received},
      {"frames_received_per_s", per_second(figures.frames_received, receive_seconds(report))},
      {"frames_lost", frames_lost(report)},
      {"frames_reordered", figures.numbers.reordered},
      {"frames_duplicate", figures.numbers.duplicates},
      {"frames_too_late", figures.numbers.too_late},
      {"frames_foreign", frames_foreign(report)},
      {"frames_bad_checksum", figures.frames_bad_checksum},
      {"kicks", report.kicks},
      {"kicks_suppressed", report.kicks_suppressed},
      {"interrupts", report.interrupts},
      {"receive_interrupts", report.receive_interrupts},
      {"cpu_ns_per_frame", cpu_ns_per_frame(report)},
      {"latency_ns", latency_json(figures.latency_ns)},
  };
  if (!report.failure.empty()) document["failure"] = report.failure;
  return document;
}

std::string pktgen_table(const PktgenReport& report, bool with_colour) {
  const GeneratorOptions& generator = report.options.generator;
  const GeneratorFigures& figures = report.figures;
  std::vector<std::vector<std::string>> rows = {{"pktgen", "frames", "M/s", "Gbit/s"}};
  const auto rate_row = [&](const char* what, uint64_t frames, double seconds) {
    const double rate = per_second(frames, seconds);
    rows.push_back(
        {what, fmt::format("{}", frames), fmt::format("{:.3f}", rate / 1e6),
         fmt::format("{:.3f}", rate * 8 * static_cast<double>(generator.frame.frame_bytes) / 1e9)});
  };
  const auto row = [&](const char* what, uint64_t frames) {
    rows.push_back({what, fmt::format("{}", frames), "", ""});
  };
  if (generator.mode != GeneratorMode::rxonly)
    rate_row("sent", figures.frames_sent, report.seconds);
  if (figures.frames_received > 0 || generator.mode == GeneratorMode::rxonly)
    rate_row("received", figures.frames_received, receive_seconds(report));
  if (figures.numbers.received > 0 || is_closed_loop(generator.mode)) {
    row("lost", frames_lost(report));
    row("reordered", figures.numbers.reordered);
    row("duplicate", figures.numbers.duplicates);
  }
  if (figures.numbers.too_late > 0) row("too late", figures.numbers.too_late);
  if (frames_foreign(report) > 0) row("not ours", frames_foreign(report));
  if (generator.verify) row("bad checksum", figures.frames_bad_checksum);
  if (report.frames_dropped > 0) row("not taken", report.frames_dropped);
  if (report.frames_unused > 0) row("not used by the device", report.frames_unused);
  std::string text = table_text(rows, {false, true, true, true}, with_colour);
  text += fmt::format("{:.1f} ns of CPU time a frame, {} kicks, {} interrupts ({} of receiving)\n",
                      cpu_ns_per_frame(report), report.kicks,
                      report.interrupts + report.receive_interrupts, report.receive_interrupts);
  const Histogram& latency = figures.latency_ns;
  if (latency.count() > 0 && generator.mode != GeneratorMode::txonly)
    text +=
        fmt::format("{}: p50 {}, p99 {}, p99.9 {}, max {}\n",
                    is_closed_loop(generator.mode) ? "there and back" : "under way",
                    microseconds(latency.percentile(0.5)), microseconds(latency.percentile(0.99)),
                    microseconds(latency.percentile(0.999)), microseconds(latency.max()));
  return text;
}

}  // namespace sluice
