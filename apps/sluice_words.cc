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

CLI::Validator number_from(double least, double most) {
  const auto check = [least, most](std::string& text) {
    double value = 0;
    const bool fits = CLI::detail::lexical_cast(text, value) && value >= least && value <= most;
    return fits ? std::string()
                : fmt::format("Value {} not in range {} to {}", printable(text), least, most);
  };
  return CLI::Validator(check, "FLOAT");
}

Failure unknown_word(std::string_view word, std::string_view command) {
  return usage_failure("unknown word '{}' (see sluice {} --help)", printable(word), command);
}

Failure in_own_words(Failure failure) {
  for (const std::string_view name : {"--nic nic0: ", "--tap t0: "})
    if (failure.text.starts_with(name)) failure.text.erase(0, name.size());
  return failure;
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
