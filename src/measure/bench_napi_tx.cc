// s4-napi-tx: what it is worth to take sent buffers back from a poll, not inside transmit.
//
// A back end of ours (`sluice run`, a VM port to null) runs on CPU 1; a front end of ours
// (`sluice pktgen`, burst 256) and the thread that handles its interrupts share CPU 0. An interrupt
// is a call eventfd that this thread has read. Before and after are one program and one knob,
// `--tx inline` and `--tx napi`.
#include <fmt/format.h>

#include "measure/bench_kit.h"
#include "measure/benchmark.h"
#include "measure/child.h"

namespace sluice {
namespace {

using nlohmann::json;

constexpr int kDriverCpu = 0;
constexpr int kBackEndCpu = 1;
constexpr double kReadySecondsMax = 10;

// One half's figures.
struct Half {
  double frames_per_s = 0;
  double interrupts_per_mframe = 0;
  double driver_ns_a_frame = 0;    // CPU time of transmit and of the interrupts' handler
  double back_end_ns_a_frame = 0;  // CPU time of the worker
};

struct Halves {
  Series frames, interrupts, driver, back_end;
  void add(const Half& half) {
    frames.push_back(half.frames_per_s / 1e6);
    interrupts.push_back(half.interrupts_per_mframe);
    driver.push_back(half.driver_ns_a_frame);
    back_end.push_back(half.back_end_ns_a_frame);
  }
};

Result<Half> run_half(bool packed, const char* mode, int interrupt_cpu, double seconds) {
  const ScratchFolder folder;
  if (folder.path.empty()) return fail("no folder for sockets in /tmp");
  const std::string socket = folder.path + "/vm0.sock";
  const std::string self = own_program();
  auto daemon = Child::start(
      {self, "run", "--vm", fmt::format("vm0,socket={},packed={}", socket, packed ? "on" : "off"),
       "--null", "n0", "--connect", "vm0:n0", "--poll-us", "50", "--cpus",
       fmt::format("{}", kBackEndCpu), "--control", folder.path + "/control.sock"},
      kBackEndCpu);
  if (!daemon) return fail(daemon.error());
  if (!(*daemon)->wait_for("ready", kReadySecondsMax))
    return fail("the back end did not start: {}", (*daemon)->output());
  std::vector<std::string> words = {self,        "pktgen",
                                    "--socket",  socket,
                                    "--mode",    "txonly",
                                    "--size",    "64",
                                    "--burst",   "256",
                                    "--tx",      mode,
                                    "--seconds", fmt::format("{}", seconds),
                                    "--cpu",     fmt::format("{}", kDriverCpu),
                                    "--irq-cpu", fmt::format("{}", interrupt_cpu),
                                    "--json"};
  if (packed) words.push_back("--packed");
  auto generator = Child::start(words, kDriverCpu);
  if (!generator) return fail(generator.error());
  const uint64_t before_ns = (*daemon)->thread_cpu_ns("sluice-worker");
  auto status = (*generator)->wait_until_ended(seconds + 20);
  if (!status) return fail(status.error());
  const uint64_t back_end_ns = (*daemon)->thread_cpu_ns("sluice-worker") - before_ns;
  const json said = last_object((*generator)->output());
  if (*status != 0 || !said.is_object())
    return fail("pktgen ended with {}: {}", *status, (*generator)->output());
  const double frames = figure(said, "frames_sent");
  if (frames == 0) return fail("pktgen sent nothing: {}", (*generator)->output());
  return Half{.frames_per_s = frames / figure(said, "seconds"),
              .interrupts_per_mframe = figure(said, "interrupts") / frames * 1e6,
              .driver_ns_a_frame = figure(said, "cpu_ns_per_frame"),
              .back_end_ns_a_frame = static_cast<double>(back_end_ns) / frames};
}

struct DocumentRow {
  bool packed;
  DocumentFigures frames, interrupts;
};

// pktgen, burst 256, one queue, the interrupt on the CPU that sends; and on another.
constexpr DocumentRow kSameCpu[] = {
    {false, {6.89, 10.7, 0.55}, {std::nullopt, std::nullopt, -0.32}},
    {true, {7.09, 10.7, 0.50}, {std::nullopt, std::nullopt, -0.99}},
};

void add_rows(Report& report, const DocumentRow& document, const Halves& before,
              const Halves& after) {
  const char* format = document.packed ? "packed rings" : "split rings";
  const auto row = [&](const char* what, const char* unit, const Series Halves::*member,
                       bool more_is_better, std::optional<DocumentFigures> figures) {
    report.rows.push_back({.label = fmt::format("{}, {}", format, what),
                           .unit = unit,
                           .before_label = "inline",
                           .after_label = "napi",
                           .before = before.*member,
                           .after = after.*member,
                           .more_is_better = more_is_better,
                           .document = figures,
                           .notes = {}});
  };
  row("frames sent", "M/s", &Halves::frames, true, document.frames);
  row("interrupts", "a million frames", &Halves::interrupts, false, document.interrupts);
  row("driver's CPU time", "ns a frame", &Halves::driver, false, std::nullopt);
  row("back end's CPU time", "ns a frame", &Halves::back_end, false, std::nullopt);
}

}  // namespace

Result<Report> bench_napi_tx(const BenchOptions& options) {
  Report report{.name = "s4-napi-tx",
                .title = "sent buffers taken back inside transmit, and from a NAPI-style poll",
                .setup =
                    "pktgen txonly, 64-byte frames, burst 256, and its interrupt handler on "
                    "CPU 0; sluice run, VM port to null, on CPU 1",
                .rows = {},
                .skips = {}};
  if (options.cpu_count < 2) {
    report.skips.push_back({"all rows", "two CPUs are needed, one a side"});
    return report;
  }
  for (const DocumentRow& document : kSameCpu) {
    Halves before, after;
    for (uint32_t round = 0; round < options.rounds; ++round) {
      for (const bool is_after : {false, true}) {
        const char* mode = is_after ? "napi" : "inline";
        options.progress(fmt::format("s4-napi-tx: {} rings, {}, round {} of {}",
                                     document.packed ? "packed" : "split", mode, round + 1,
                                     options.rounds));
        auto half = run_half(document.packed, mode, kDriverCpu, options.seconds);
        if (!half) return fail(half.error());
        (is_after ? after : before).add(*half);
      }
    }
    add_rows(report, document, before, after);
  }
  report.skips.push_back({"the interrupt handler on a CPU of its own",
                          options.cpu_count < 3 ? "three CPUs are needed"
                                                : "not built yet: run pktgen with --irq-cpu"});
  return report;
}

}  // namespace sluice
