// The subcommands of the program, one a file (cmd_<name>.cc).
//
// Each takes the words that follow its name on the command line, prints what it has to say, and
// returns the exit status: 0 fine, 1 failed, 2 the words were wrong. main() only looks them up.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace sluice {

using Arguments = std::vector<std::string>;

inline constexpr int kExitFine = 0;
inline constexpr int kExitFailed = 1;
inline constexpr int kExitUsage = 2;

int cmd_run(const Arguments& arguments);
int cmd_guest(const Arguments& arguments);
int cmd_pktgen(const Arguments& arguments);
int cmd_tap(const Arguments& arguments);
int cmd_stats(const Arguments& arguments);
int cmd_ports(const Arguments& arguments);
int cmd_xdp(const Arguments& arguments);
int cmd_bench(const Arguments& arguments);

// Prints "sluice COMMAND: sentence" in one line on standard error; returns the exit status that
// belongs to the failure.
int report_failure(std::string_view command, const Failure& failure);

}  // namespace sluice
