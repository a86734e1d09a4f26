// sluice ports: the ports of a running daemon, what they are connected to, what was negotiated.
#include <nlohmann/json.hpp>

#include "commands.h"
#include "control/control_client.h"
#include "sluice_client.h"

namespace sluice {
namespace {

using nlohmann::json;

constexpr std::string_view kHelp =
    R"(sluice ports: the ports of a running daemon

  sluice ports                       a table
  sluice ports --json                the same for programs

  --control PATH                    the daemon's control socket
                                    (default /run/sluice/control.sock)
)";

std::string cell(const json& port, const char* key) {
  const auto found = port.find(key);
  if (found == port.end() || found->is_null()) return "-";
  if (found->is_string()) return found->get<std::string>();
  if (!found->is_array()) return found->dump();
  std::string names;
  for (const json& name : *found) {
    if (!name.is_string()) continue;
    names += names.empty() ? "" : " ";
    names += name.get<std::string>();
  }
  return names.empty() ? "-" : names;
}

std::string port_table(const json& answer) {
  std::vector<std::vector<std::string>> rows = {
      {"PORT", "NUMBER", "KIND", "CONNECTED TO", "QUEUES", "ACTIVE", "NEGOTIATED"}};
  const auto ports = answer.find("ports");
  if (ports != answer.end() && ports->is_array()) {
    for (const json& port : *ports) {
      if (!port.is_object()) continue;
      rows.push_back({cell(port, "name"), cell(port, "number"), cell(port, "kind"),
                      cell(port, "connected_to"), cell(port, "queues"), cell(port, "active_queues"),
                      cell(port, "negotiated")});
    }
  }
  return table_text(rows, {false, true, false, false, true, true, false}, output_has_colour());
}

}  // namespace

int cmd_ports(const Arguments& arguments) {
  const Result<ClientOptions> options = parse_client_arguments(arguments, /*takes_watch=*/false);
  if (!options) return report_failure("ports", options.error());
  if (options->wants_help) {
    fmt::print("{}", kHelp);
    return kExitFine;
  }
  const Result<json> answer = ask_daemon(options->control_path, "ports");
  if (!answer) return report_failure("ports", answer.error());
  if (options->as_json) {
    fmt::print("{}\n", answer->dump(2, ' ', false, json::error_handler_t::replace));
  } else {
    fmt::print("{}", port_table(*answer));
  }
  return kExitFine;
}

}  // namespace sluice
