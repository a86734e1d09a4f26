// What the subcommands that ask a running daemon have in common.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "commands.h"
#include "control/text_table.h"

namespace sluice {

struct ClientOptions {
  std::string control_path;
  bool as_json = false;
  bool watch = false;
  bool wants_help = false;
};

// `takes_watch`: whether the command knows --watch.
Result<ClientOptions> parse_client_arguments(const Arguments& arguments, bool takes_watch);

// Whether standard output is a person's terminal that shows colours.
bool output_has_colour();

}  // namespace sluice
