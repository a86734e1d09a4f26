// Pktgen: a generator connected to a nic, run once: `sluice pktgen`, put together.
//
// It connects to a back end (or waits for one), sends or receives for so long or so many frames,
// lets what is under way arrive, and says what came of it. One worker; the control thread looks
// every 20 ms whether the end has come.
//
//   auto report = run_pktgen(options, [](std::string_view line) { …a line each second… });
//   if (report) …pktgen_json(*report), pktgen_table(*report)…
#pragma once

#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "control/options.h"
#include "port/generator_port.h"

namespace sluice {

struct PktgenOptions {
  NicOptions nic;
  GeneratorOptions generator;
  double seconds = 0;        // of sending or receiving; 0: until the count, or a signal
  double wait_seconds = 10;  // for a back end
  int cpu = -1;              // where the worker runs; -1: wherever the kernel puts it
  uint32_t poll_us = kPollMicrosecondsDefault;
};

// One run.
struct PktgenReport {
  PktgenOptions options;
  std::vector<std::string> negotiated;  // with the device, by name
  double seconds = 0;                   // from the start until sending ended; drain not included
  GeneratorFigures figures;
  uint64_t frames_dropped = 0;  // made, and not taken by the nic
  uint64_t frames_unused = 0;   // sent, and not used by the device when we left
  uint64_t kicks = 0;           // of either ring, and those that the device had not asked for
  uint64_t kicks_suppressed = 0;
  uint64_t interrupts = 0;          // of the transmit ring
  uint64_t receive_interrupts = 0;  // of the receive ring
  uint64_t cpu_ns = 0;              // of the worker and the interrupts' handler
  std::string failure;              // why it ended before its time; empty: it did not
};

// Fails when it could not begin. A back end that goes away ends the run: PktgenReport::failure.
Result<PktgenReport> run_pktgen(const PktgenOptions& options,
                                const std::function<void(std::string_view)>& progress);

// What is lost: skipped numbers; in a closed loop also what never came back.
uint64_t frames_lost(const PktgenReport& report);
nlohmann::json pktgen_json(const PktgenReport& report);
std::string pktgen_table(const PktgenReport& report, bool with_colour);
std::string_view mode_name(GeneratorMode mode);

}  // namespace sluice
