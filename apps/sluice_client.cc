#include "sluice_client.h"

#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdlib>

#include "control/option_schema.h"

namespace sluice {
namespace {

// Cells hold names and figures, so bytes are columns.
std::vector<size_t> column_widths(const std::vector<std::vector<std::string>>& rows) {
  std::vector<size_t> widths(rows.front().size(), 0);
  for (const auto& row : rows) {
    SLUICE_ASSERT(row.size() == widths.size());
    for (size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
  }
  return widths;
}

}  // namespace

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

std::string table_text(const std::vector<std::vector<std::string>>& rows,
                       const std::vector<bool>& right_aligned, bool with_colour) {
  const std::vector<size_t> widths = column_widths(rows);
  std::string text;
  for (size_t row = 0; row < rows.size(); ++row) {
    std::string line;
    for (size_t i = 0; i < widths.size(); ++i) {
      line += right_aligned[i] ? fmt::format("{:>{}}", rows[row][i], widths[i])
                               : fmt::format("{:<{}}", rows[row][i], widths[i]);
      line += "  ";
    }
    line.erase(line.find_last_not_of(' ') + 1);
    text += row == 0 && with_colour ? fmt::format("\x1b[1m{}\x1b[0m\n", line) : line + "\n";
  }
  return text;
}

bool output_has_colour() {
  const char* no_colour = std::getenv("NO_COLOR");
  return isatty(STDOUT_FILENO) != 0 && (no_colour == nullptr || *no_colour == '\0');
}

}  // namespace sluice
