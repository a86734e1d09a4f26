// The program: finds the subcommand and hands it the words that follow.
#include <cstdio>
#include <exception>

#include "commands.h"
#include "control/option_schema.h"

namespace sluice {
namespace {

struct Command {
  std::string_view name;
  int (*run)(const Arguments& arguments);
  std::string_view sentence;
};

constexpr Command kCommands[] = {
    {"run", cmd_run, "carry frames between VMs, TAPs and other ports"},
    {"guest", cmd_guest, "an interface of the host that plugs into a back end as a VM does"},
    {"pktgen", cmd_pktgen, "send and receive numbered frames through a back end, as a VM would"},
    {"tap", cmd_tap, "open TAP queues the way we do, for another program to use"},
    {"stats", cmd_stats, "show what a running daemon has carried and dropped"},
    {"ports", cmd_ports, "show the ports of a running daemon"},
    {"xdp", cmd_xdp, "run XDP programs on the frames of a port, and look into their maps"},
    {"bench", cmd_bench, "measure, on this machine, what a choice is worth"},
};

void print_help() {
  fmt::print(
      "sluice {}: a userspace packet fast path for virtual machines\n\n"
      "  sluice run --vm vm0,socket=/run/sluice/vm0.sock --tap t0,ifname=tap0 --connect vm0:t0\n"
      "  sluice stats\n\n",
      SLUICE_VERSION);
  for (const Command& command : kCommands) {
    fmt::print("  sluice {:<8}{}\n", command.name, command.sentence);
  }
  fmt::print("\n`sluice COMMAND --help` tells more of each.\n");
}

std::vector<std::string_view> command_names() {
  std::vector<std::string_view> names;
  for (const Command& command : kCommands) names.push_back(command.name);
  return names;
}

Failure unknown_command(const std::string& word) {
  const std::vector<std::string_view> names = command_names();
  return usage_failure("unknown command '{}'{} (commands: {})", printable(word),
                       did_you_mean(word, names), fmt::join(names, ", "));
}

int dispatch(const Arguments& words) {
  if (words.empty()) {
    return report_failure("", usage_failure("no command: give one of {} (see sluice --help)",
                                            fmt::join(command_names(), ", ")));
  }
  const std::string& word = words.front();
  if (word == "--version" || word == "-V") {
    fmt::print("sluice {}\n", SLUICE_VERSION);
    return kExitFine;
  }
  if (word == "--help" || word == "-h" || word == "help") {
    print_help();
    return kExitFine;
  }
  for (const Command& command : kCommands) {
    if (word == command.name) return command.run(Arguments(words.begin() + 1, words.end()));
  }
  return report_failure("", unknown_command(word));
}

}  // namespace

int report_failure(std::string_view command, const Failure& failure) {
  fmt::print(stderr, "sluice{}{}: {}\n", command.empty() ? "" : " ", command, failure.text);
  return failure.is_usage ? kExitUsage : kExitFailed;
}

}  // namespace sluice

int main(int argc, char** argv) try {
  return sluice::dispatch(sluice::Arguments(argv + 1, argv + argc));
} catch (const std::exception& error) {
  // Nothing of ours throws on purpose; memory may run out while we start.
  std::fprintf(stderr, "sluice: %s\n", error.what());
  return sluice::kExitFailed;
}
