// "NAME,key=value,…": the form of lists on the command line.
#include <algorithm>

#include "control/option_schema.h"

namespace sluice {
namespace {

// More than any list can have: the longest has a name and eight keys.
constexpr size_t kListItemsMax = 64;

// Splits at single commas; a double one stands for a comma in a value. Empty when there are more
// items than any list can have.
std::vector<std::string> split_list(std::string_view list) {
  std::vector<std::string> items(1);
  for (size_t at = 0; at < list.size(); ++at) {
    if (list[at] != ',') {
      items.back() += list[at];
    } else if (at + 1 < list.size() && list[at + 1] == ',') {
      items.back() += ',';
      ++at;
    } else {
      if (items.size() == kListItemsMax) return {};
      items.emplace_back();
    }
  }
  return items;
}

// One "key=value" of the list that was begun last.
Result<void> store_item(const ListSchema& schema, std::string_view item, std::string_view where,
                        std::vector<std::string_view>& keys_seen, RunOptions& options) {
  const size_t equals = item.find('=');
  const std::string_view name = item.substr(0, equals);
  const KeySchema* key = find_key(schema.keys, name);
  if (!key) return unknown_key(schema.keys, name, where);
  if (equals == std::string_view::npos) {
    return usage_failure("{}key '{}' has no value: give {}={}", where, name, name,
                         key->placeholder);
  }
  if (std::ranges::find(keys_seen, key->name) != keys_seen.end()) {
    return usage_failure("{}{}={}: key '{}' is given twice: give it once", where, name,
                         printable(item.substr(equals + 1)), name);
  }
  keys_seen.push_back(key->name);
  Result<OptionValue> value = parse_option_value(*key, item.substr(equals + 1), where);
  if (!value) return value.error();
  key->store(options, std::move(*value));
  return {};
}

Result<void> parse_list(const ListSchema& schema, std::string_view option, std::string_view list,
                        RunOptions& options) {
  const std::vector<std::string> items = split_list(list);
  if (items.empty()) {
    return usage_failure("{} {}: more than {} items: a comma inside a value is written ',,'",
                         option, printable(list), kListItemsMax);
  }
  if (items[0].find('=') != std::string::npos) {
    return usage_failure("{} {}: the port's name comes first: {}", option, printable(list),
                         schema.example);
  }
  const std::string origin = fmt::format("{} {}", option, printable(items[0]));
  const std::string where = origin + ": ";
  if (Result<void> checked = check_port_name(items[0], fmt::format("{}: ", option)); !checked) {
    return checked;
  }
  schema.begin(options, items[0], Origin{origin});
  std::vector<std::string_view> keys_seen;
  for (size_t i = 1; i < items.size(); ++i) {
    const Result<void> stored = store_item(schema, items[i], where, keys_seen, options);
    if (!stored) return stored;
  }
  return schema.finish(options);
}

}  // namespace

Result<void> parse_connection(std::string_view text, std::string origin, RunOptions& options) {
  const size_t colon = text.find(':');
  const std::string where = origin + ": ";
  if (colon == std::string_view::npos) {
    return usage_failure("{}no ':' between two port names: give A:B, like vm0:t0", where);
  }
  const std::string_view a = text.substr(0, colon);
  const std::string_view b = text.substr(colon + 1);
  for (const std::string_view name : {a, b}) {
    const Result<void> checked = check_port_name(name, where);
    if (!checked) return checked;
  }
  options.connections.push_back({std::string(a), std::string(b), Origin{std::move(origin)}});
  return {};
}

Result<void> parse_list_option(std::string_view kind, std::string_view list, RunOptions& options) {
  if (kind == "connect") {
    return parse_connection(list, fmt::format("--connect {}", printable(list)), options);
  }
  const ListSchema* schema = find_list_schema(kind);
  SLUICE_ASSERT(schema != nullptr);
  return parse_list(*schema, fmt::format("--{}", kind), list, options);
}

Result<TapOptions> parse_tap_list(std::string_view option, std::string_view list) {
  RunOptions options;
  const Result<void> parsed = parse_list(*find_list_schema("tap"), option, list, options);
  if (!parsed) return parsed.error();
  SLUICE_ASSERT(options.taps.size() == 1);
  return std::move(options.taps.front());
}

Result<XdpOptions> parse_xdp_list(std::string_view option, std::string_view list) {
  RunOptions options;
  const Result<void> parsed = parse_list(*find_list_schema("xdp"), option, list, options);
  if (!parsed) return parsed.error();
  SLUICE_ASSERT(options.programs.size() == 1);
  return std::move(options.programs.front());
}

}  // namespace sluice
