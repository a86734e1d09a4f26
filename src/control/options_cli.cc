// The words after `sluice run`. CLI11 takes them apart into options; what is inside a list is the
// schema's.
#include <CLI/CLI.hpp>
#include <fstream>
#include <iterator>
#include <map>

#include "control/option_schema.h"

namespace sluice {
namespace {

struct Words {
  std::map<std::string_view, std::vector<std::string>> lists;   // by name, connect included
  std::map<std::string_view, std::vector<std::string>> values;  // each at most once
  std::map<std::string_view, bool> flags;
  std::string config_path;
  std::string help_qemu_port;
  bool wants_help = false;
};

void declare(CLI::App& app, Words& words) {
  app.set_help_flag();  // ours: CLI11 would print its own text
  app.allow_extras();   // ours: with a suggestion
  app.add_flag("-h,--help", words.wants_help);
  app.add_option("--config", words.config_path);
  app.add_option("--help-qemu", words.help_qemu_port);
  const auto add_list = [&](std::string_view name) {
    app.add_option("--" + std::string(name), words.lists[name])->allow_extra_args(false);
  };
  for (const ListSchema& list : list_schemas()) add_list(list.name);
  add_list("connect");
  for (const KeySchema& value : value_schemas()) {
    const std::string option = "--" + std::string(value.name);
    if (value.kind == ValueKind::flag) {
      app.add_flag(value.name == "verbose" ? "-v," + option : option, words.flags[value.name]);
    } else {
      app.add_option(option, words.values[value.name])->allow_extra_args(false);
    }
  }
}

Failure unknown_word(const std::string& word) {
  const std::string option = word.substr(0, word.find('='));
  std::vector<std::string> options = {"--config", "--help-qemu", "--help", "--connect"};
  for (const ListSchema& list : list_schemas()) options.push_back("--" + std::string(list.name));
  for (const KeySchema& value : value_schemas()) options.push_back("--" + std::string(value.name));
  if (!word.starts_with('-')) {
    return usage_failure(
        "'{}' is no option: every word of `sluice run` belongs to one (see --help)",
        printable(word));
  }
  const std::vector<std::string_view> candidates(options.begin(), options.end());
  return usage_failure("unknown option '{}'{} (sluice run --help lists all)", printable(option),
                       did_you_mean(option, candidates));
}

Result<void> read_config(const std::string& path, RunOptions& options) {
  std::ifstream file(path, std::ios::binary);
  // A folder opens, but cannot be read.
  if (!file || file.peek() == std::ifstream::traits_type::eof()) {
    if (file.bad() || !file.eof()) {
      return usage_failure("--config {}: cannot be read: {}", printable(path), errno_text(errno));
    }
    return {};
  }
  // One byte more than a config may have: parse_config_text() refuses it.
  std::string text(1024 * 1024 + 1, '\0');
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  text.resize(static_cast<size_t>(file.gcount()));
  return parse_config_text(text, printable(path), options);
}

Result<void> apply(const Words& words, RunOptions& options) {
  if (!words.config_path.empty()) {
    const Result<void> read = read_config(words.config_path, options);
    if (!read) return read;
  }
  for (const KeySchema& key : value_schemas()) {
    std::string_view text;
    if (key.kind == ValueKind::flag) {
      if (!words.flags.at(key.name)) continue;
      text = "on";
    } else {
      const std::vector<std::string>& given = words.values.at(key.name);
      if (given.empty()) continue;
      if (given.size() > 1) {
        return usage_failure("--{} {}: the option is given twice: give it once", key.name,
                             printable(given[1]));
      }
      text = given.front();
    }
    Result<OptionValue> value = parse_option_value(key, text, "--");
    if (!value) return value.error();
    key.store(options, std::move(*value));
  }
  for (const auto& [kind, lists] : words.lists) {
    for (const std::string& list : lists) {
      const Result<void> parsed = parse_list_option(kind, list, options);
      if (!parsed) return parsed;
    }
  }
  return {};
}

}  // namespace

Result<RunRequest> parse_run_arguments(const std::vector<std::string>& arguments) {
  CLI::App app;
  Words words;
  declare(app, words);
  try {
    app.parse(std::vector<std::string>(arguments.rbegin(), arguments.rend()));
  } catch (const CLI::ArgumentMismatch& error) {
    // CLI11 says "--vm: 1 required TEXT missing".
    const std::string_view text = error.what();
    return usage_failure("{}: no value follows it (sluice run --help has examples)",
                         printable(text.substr(0, text.find(':'))));
  } catch (const CLI::ParseError& error) {
    return usage_failure("{}", printable(error.what()));
  }
  RunRequest request;
  request.wants_help = words.wants_help;
  if (request.wants_help) return request;
  const std::vector<std::string> unknown = app.remaining();
  if (!unknown.empty()) return unknown_word(unknown.front());

  const Result<void> applied = apply(words, request.options);
  if (!applied) return applied.error();
  Result<std::vector<std::string>> warnings = check_run_options(request.options);
  if (!warnings) return warnings.error();
  request.warnings = std::move(*warnings);
  request.help_qemu_port = words.help_qemu_port;
  return request;
}

}  // namespace sluice
