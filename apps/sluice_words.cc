#include "sluice_words.h"

#include "control/option_schema.h"

namespace sluice {

Result<void> parse_words(CLI::App& app, const Arguments& arguments, std::string_view command) {
  try {
    app.parse(Arguments(arguments.rbegin(), arguments.rend()));
  } catch (const CLI::Error& error) {
    return usage_failure("{} (see sluice {} --help)", error.what(), command);
  }
  return {};
}

Failure unknown_word(std::string_view word, std::string_view command) {
  return usage_failure("unknown word '{}' (see sluice {} --help)", printable(word), command);
}

std::string in_list(std::string_view value) {
  std::string out;
  for (const char c : value) {
    out += c;
    if (c == ',') out += ',';
  }
  return out;
}

}  // namespace sluice
