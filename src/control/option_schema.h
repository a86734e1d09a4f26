// The schema of `sluice run`: every kind of list and every single value, with its keys, types,
// ranges and sentences. The command line, the TOML file and the help text are made from it.
//
// To add a key: one line in option_schema.cc (and a field in options.h). Nothing else parses.
//
//   for (const ListSchema& list : list_schemas())      // --vm, --tap, …
//     for (const KeySchema& key : list.keys) …         // socket=, mode=, …
//   for (const KeySchema& key : value_schemas()) …     // --batch, --poll-us, …
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "control/options.h"

namespace sluice {

enum class ValueKind : uint8_t {
  text,         // printable, of any sense
  path,         // of a Unix socket
  interface,    // a network interface's name
  number,       // decimal, from min to max
  permissions,  // octal
  word,         // one of `words`
  flag,         // on or off; on the command line an option without a value
  mac,
  descriptors,  // 3:4:5
  cpus,         // 0,2-3
};

// A value that has been checked against its kind.
struct OptionValue {
  std::string text = {};
  uint64_t number = 0;  // of number and permissions; 1 or 0 of a flag
  std::vector<int> numbers = {};
  MacAddress mac{};
};

struct KeySchema {
  std::string_view name;
  ValueKind kind;
  std::string_view placeholder;  // how the help calls the value: "PATH"
  std::string_view sentence;
  // Puts the value into the options: for a key of a list, into the last entry of its kind.
  void (*store)(RunOptions& options, OptionValue value);
  uint64_t min = 0;
  uint64_t max = 0;
  std::vector<std::string_view> words = {};
};

struct ListSchema {
  std::string_view name;  // "vm": --vm and [[vm]]
  std::string_view sentence;
  std::string_view example;
  std::span<const KeySchema> keys;
  void (*begin)(RunOptions& options, std::string name, Origin origin);
  // What concerns several keys of one list: required ones, ones that exclude each other.
  Result<void> (*finish)(RunOptions& options);
};

std::span<const ListSchema> list_schemas();
std::span<const KeySchema> value_schemas();
const ListSchema* find_list_schema(std::string_view name);
const KeySchema* find_key(std::span<const KeySchema> keys, std::string_view name);

// Checks `text` against the key. A refusal starts with `where`, names key and value, and says what
// is allowed.
Result<OptionValue> parse_option_value(const KeySchema& key, std::string_view text,
                                       std::string_view where);
// What a key takes, for a person: "a number from 1 to 128".
std::string allowed_values(const KeySchema& key);
// The refusal of a key that is in no schema, with the nearest that is.
Failure unknown_key(std::span<const KeySchema> keys, std::string_view name, std::string_view where);

// A port's name: 1 to 32 of letters, digits, '_', '-' and '.'; the first is none of "-.".
Result<void> check_port_name(std::string_view name, std::string_view where);

// "A:B". `origin` is the whole option, for messages.
Result<void> parse_connection(std::string_view text, std::string origin, RunOptions& options);

// `text` fit for one line of a message: cut when long, control characters made visible.
std::string printable(std::string_view text);
// ": did you mean 'queues'?" when a candidate is near, else nothing.
std::string did_you_mean(std::string_view word, std::span<const std::string_view> candidates);

}  // namespace sluice
