// sluice run: the daemon.
#include "commands.h"
#include "control/daemon.h"
#include "control/option_schema.h"
#include "control/qemu_help.h"

namespace sluice {
namespace {

int print_qemu_help(const RunRequest& request) {
  std::vector<std::string_view> names;
  for (const VmOptions& vm : request.options.vms) {
    if (vm.name == request.help_qemu_port) {
      fmt::print("{}", qemu_help_text(vm));
      return kExitFine;
    }
    names.push_back(vm.name);
  }
  return report_failure(
      "run",
      usage_failure("--help-qemu {}: there is no VM port of that name{} (VM ports: {})",
                    printable(request.help_qemu_port), did_you_mean(request.help_qemu_port, names),
                    names.empty() ? "none" : fmt::format("{}", fmt::join(names, ", "))));
}

}  // namespace

int cmd_run(const Arguments& arguments) {
  const Result<RunRequest> request = parse_run_arguments(arguments);
  if (!request) return report_failure("run", request.error());
  if (request->wants_help) {
    fmt::print("{}", run_help_text());
    return kExitFine;
  }
  if (!request->help_qemu_port.empty()) return print_qemu_help(*request);
  set_log_level(request->options.verbose ? LogLevel::debug : LogLevel::info);
  for (const std::string& warning : request->warnings) log_warning("{}", warning);
  const Result<void> ran = run_daemon(request->options);
  return ran ? kExitFine : report_failure("run", ran.error());
}

}  // namespace sluice
