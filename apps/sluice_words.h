// The words of a command that parses its own: what such commands have in common.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <string_view>

#include "commands.h"

namespace sluice {

// Hands the words to the app; a refusal names `sluice COMMAND --help`. What the app does not know
// is left in app.remaining().
Result<void> parse_words(CLI::App& app, const Arguments& arguments, std::string_view command);
// A number between these bounds. (CLI::Range finds "nan" in every range.)
CLI::Validator number_from(double least, double most);
// The refusal of a word that nobody knows.
Failure unknown_word(std::string_view word, std::string_view command);

// A value for one of the lists of `sluice run` ("NAME,key=value,…"), where a comma is written
// twice.
std::string in_list(std::string_view value);
// A refusal of such a list without the list's own name, which nobody has typed.
Failure in_own_words(Failure failure);

}  // namespace sluice
