// The TOML file of `sluice run --config`: the same schema as the command line's.
#include <toml++/toml.h>

#include <algorithm>

#include "control/option_schema.h"

namespace sluice {
namespace {

constexpr size_t kConfigBytesMax = 1024 * 1024;

std::string line_of(std::string_view file_name, const toml::node& node) {
  return fmt::format("{} line {}", file_name, node.source().begin.line);
}

// A value of the file as it would be written on the command line. An array becomes what the kind
// of list is separated by there; nothing for what has no such form.
std::optional<std::string> scalar_text(const KeySchema& key, const toml::node& node) {
  if (const auto* text = node.as_string()) return text->get();
  if (const auto* flag = node.as_boolean()) return flag->get() ? "on" : "off";
  if (const auto* number = node.as_integer()) {
    // Permission bits are written 0o660 in TOML: the number is meant, not its decimal digits.
    if (key.kind != ValueKind::permissions) return fmt::format("{}", number->get());
    return number->get() < 0 ? fmt::format("{}", number->get())
                             : fmt::format("{:o}", number->get());
  }
  return std::nullopt;
}

std::optional<std::string> value_text(const KeySchema& key, const toml::node& node) {
  const toml::array* array = node.as_array();
  if (!array) return scalar_text(key, node);
  if (key.kind != ValueKind::descriptors && key.kind != ValueKind::cpus) return std::nullopt;
  std::string joined;
  for (const toml::node& element : *array) {  // bounded by the size of the file
    const std::optional<std::string> text = scalar_text(key, element);
    if (!text) return std::nullopt;
    if (!joined.empty()) joined += key.kind == ValueKind::cpus ? ',' : ':';
    joined += *text;
  }
  return joined;
}

Result<void> store_node(const KeySchema& key, const toml::node& node, std::string_view where,
                        RunOptions& options) {
  const std::optional<std::string> text = value_text(key, node);
  if (!text) {
    return usage_failure("{}{} is no single value: give {}", where, key.name, allowed_values(key));
  }
  Result<OptionValue> value = parse_option_value(key, *text, where);
  if (!value) return value.error();
  key.store(options, std::move(*value));
  return {};
}

// One [[vm]] table.
Result<void> parse_table(const ListSchema& schema, const toml::table& table,
                         std::string_view file_name, RunOptions& options) {
  const std::string head = fmt::format("{}: [[{}]]", line_of(file_name, table), schema.name);
  const auto* name = table["name"].as_string();
  if (!name) return usage_failure("{}: no name: give name = \"{}0\"", head, schema.name);
  const Result<void> checked = check_port_name(name->get(), head + ": ");
  if (!checked) return checked;
  const std::string origin = fmt::format("{} {}", head, name->get());
  schema.begin(options, name->get(), Origin{origin});
  for (const auto& [key_name, node] : table) {
    if (key_name == "name") continue;
    const std::string where = origin + ": ";
    const KeySchema* key = find_key(schema.keys, key_name.str());
    if (!key) return unknown_key(schema.keys, key_name.str(), where);
    const Result<void> stored = store_node(*key, node, where, options);
    if (!stored) return stored;
  }
  return schema.finish(options);
}

Result<void> parse_tables(const ListSchema& schema, const toml::node& node,
                          std::string_view file_name, RunOptions& options) {
  const toml::array* array = node.as_array();
  const bool are_tables =
      array && std::all_of(array->begin(), array->end(),
                           [](const toml::node& element) { return element.is_table(); });
  if (!are_tables) {
    return usage_failure("{}: '{}' is no list of tables: write [[{}]] above the keys of each",
                         line_of(file_name, node), schema.name, schema.name);
  }
  for (const toml::node& element : *array) {
    const Result<void> parsed = parse_table(schema, *element.as_table(), file_name, options);
    if (!parsed) return parsed;
  }
  return {};
}

// "A:B", or a table with a and b.
Result<void> parse_cable(const toml::node& node, std::string_view file_name, RunOptions& options) {
  const std::string where = line_of(file_name, node);
  if (const auto* text = node.as_string()) {
    return parse_connection(
        text->get(), fmt::format("{}: connect \"{}\"", where, printable(text->get())), options);
  }
  const toml::table* table = node.as_table();
  const auto* a = table ? (*table)["a"].as_string() : nullptr;
  const auto* b = table ? (*table)["b"].as_string() : nullptr;
  if (!a || !b || table->size() != 2) {
    return usage_failure("{}: connect takes \"A:B\", or a table with a = \"A\" and b = \"B\" only",
                         where);
  }
  const std::string cable = fmt::format("{}:{}", a->get(), b->get());
  return parse_connection(cable, fmt::format("{}: [[connect]] {}", where, printable(cable)),
                          options);
}

Result<void> parse_cables(const toml::node& node, std::string_view file_name, RunOptions& options) {
  const toml::array* array = node.as_array();
  if (!array) {
    return usage_failure("{}: connect is no list: write connect = [\"vm0:t0\"]",
                         line_of(file_name, node));
  }
  for (const toml::node& element : *array) {
    const Result<void> parsed = parse_cable(element, file_name, options);
    if (!parsed) return parsed;
  }
  return {};
}

Failure unknown_top_key(std::string_view key, const std::string& where) {
  std::vector<std::string_view> names;
  for (const ListSchema& list : list_schemas()) names.push_back(list.name);
  names.push_back("connect");
  for (const KeySchema& value : value_schemas()) names.push_back(value.name);
  return usage_failure("{}: unknown key '{}'{} (allowed: {})", where, printable(key),
                       did_you_mean(key, names), fmt::join(names, ", "));
}

// Keys of a TOML table come sorted by name: lists are read in the order of the schema instead, so
// that the first refusal does not depend on names.
Result<void> parse_document(const toml::table& document, std::string_view file_name,
                            RunOptions& options) {
  for (const auto& [key, node] : document) {
    const bool known =
        key == "connect" || find_list_schema(key.str()) || find_key(value_schemas(), key.str());
    if (!known) return unknown_top_key(key.str(), line_of(file_name, node));
  }
  for (const KeySchema& value : value_schemas()) {
    const toml::node* node = document.get(value.name);
    if (!node) continue;
    const Result<void> stored = store_node(value, *node, line_of(file_name, *node) + ": ", options);
    if (!stored) return stored;
  }
  for (const ListSchema& list : list_schemas()) {
    const toml::node* node = document.get(list.name);
    if (!node) continue;
    const Result<void> parsed = parse_tables(list, *node, file_name, options);
    if (!parsed) return parsed;
  }
  const toml::node* cables = document.get("connect");
  return cables ? parse_cables(*cables, file_name, options) : Result<void>();
}

}  // namespace

Result<void> parse_config_text(std::string_view text, std::string_view file_name,
                               RunOptions& options) {
  if (text.size() > kConfigBytesMax) {
    return usage_failure("--config {}: larger than 1 MiB: give the TOML file", file_name);
  }
  try {
    const toml::table document = toml::parse(text);
    return parse_document(document, file_name, options);
  } catch (const toml::parse_error& error) {
    return usage_failure("{} line {}: this is not TOML: {}", file_name, error.source().begin.line,
                         printable(error.description()));
  }
}

}  // namespace sluice
