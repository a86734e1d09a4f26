// The asking side of the control socket, for the subcommands that talk to a running daemon.
//
//   Result<nlohmann::json> answer = ask_daemon("/run/sluice/control.sock", "stats");
#pragma once

#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <string_view>

#include "base/result.h"

namespace sluice {

// Sends {"command": command} and waits a few seconds for the answer. An answer that is an error, or
// no JSON, is a failure, too.
Result<nlohmann::json> ask_daemon(const std::string& control_path, std::string_view command);
// The same with a whole request, {"command": …, …}, and descriptors that go with it.
Result<nlohmann::json> ask_daemon(const std::string& control_path, const nlohmann::json& request,
                                  std::span<const int> fds);

}  // namespace sluice
