#include "sluice_client.h"

#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdlib>

#include "control/option_schema.h"

namespace sluice {
namespace {}  // namespace

Result<ClientOptions> parse_client_arguments(const Arguments& arguments, bool takes_watch) {
  ClientOptions options{.control_path = std::string(kControlPathDefault)};
  CLI::App app;
  app.set_help_flag();
  app.allow_extras();
  app.add_flag("-h,--help", options.wants_help);
  app.add_option("--control", options.control_path);
  app.add_flag("--json", options.as_json);
  if (takes_watch) app.add_flag("--watch", options.watch);
  try {
    app.parse(Arguments(arguments.rbegin(), arguments.rend()));
  } catch (const CLI::ParseError& error) {
    return usage_failure("{}", printable(error.what()));
  }
  const std::vector<std::string> unknown = app.remaining();
  if (unknown.empty() || options.wants_help) return options;
  std::vector<std::string_view> candidates = {"--control", "--json", "--help"};
  if (takes_watch) candidates.push_back("--watch");
  return usage_failure("unknown word '{}'{} (allowed: {})", printable(unknown.front()),
                       did_you_mean(unknown.front(), candidates), fmt::join(candidates, ", "));
}

bool output_has_colour() {
  const char* no_colour = std::getenv("NO_COLOR");
  return isatty(STDOUT_FILENO) != 0 && (no_colour == nullptr || *no_colour == '\0');
}

}  // namespace sluice
