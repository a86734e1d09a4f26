// sluice xdp: programs on the ports of a running daemon, and their maps.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/log.h"
#include "commands.h"
#include "control/control_client.h"
#include "control/option_schema.h"
#include "control/xdp_map_json.h"
#include "control/xdp_map_types.h"
#include "control/xdp_wire.h"
#include "sluice_client.h"
#include "xdp/btf_format.h"

namespace sluice {
namespace {

using nlohmann::json;

constexpr std::string_view kHelp =
    R"(sluice xdp: XDP programs on the ports of a running daemon, and their maps

  sluice xdp attach PORT,object=FILE[,program=NAME]    run it on each frame that PORT brings
  sluice xdp replace PORT,object=FILE[,program=NAME]   the same instead of the one that runs
  sluice xdp detach PORT
  sluice xdp list                                      what runs where

  sluice xdp map dump PORT MAP                         every key with its value
  sluice xdp map update PORT MAP key KEY value VALUE [any|noexist|exist]
  sluice xdp map delete PORT MAP key KEY

  --json                            answers for programs
  -v, --verbose                     attach, replace: all that the kernel's verifier said
  --control PATH                    the daemon's control socket
                                    (default /run/sluice/control.sock)

The kernel's verifier judges a program before anything changes: attach and replace need CAP_BPF,
CAP_NET_ADMIN and CAP_PERFMON (or root), the daemon needs none of them. A program that is refused
leaves the one that runs alone.

KEY and VALUE are a number, an address (10.0.0.1), a prefix for an LPM trie (10.0.0.0/8), a hardware
address, or bytes: 1 2 0x0f, or hex 01 02 0f. A value of a per-CPU map is set for every worker. Port
numbers, as programs and device maps have them, are in `sluice ports`.
)";

struct XdpWords {
  ClientOptions client;
  bool verbose = false;
  std::vector<std::string> words;  // what is neither an option nor its value
};

Result<XdpWords> parse_words(const Arguments& arguments) {
  XdpWords parsed;
  parsed.client.control_path = std::string(kControlPathDefault);
  CLI::App app;
  app.set_help_flag();
  app.allow_extras();
  app.add_flag("-h,--help", parsed.client.wants_help);
  app.add_option("--control", parsed.client.control_path);
  app.add_flag("--json", parsed.client.as_json);
  app.add_flag("-v,--verbose", parsed.verbose);
  try {
    app.parse(Arguments(arguments.rbegin(), arguments.rend()));
  } catch (const CLI::ParseError& error) {
    return usage_failure("{}", printable(error.what()));
  }
  parsed.words = app.remaining();
  return parsed;
}

std::string text_of(const json& object, const char* key) {
  const auto found = object.find(key);
  if (found == object.end() || found->is_null()) return "-";
  return found->is_string() ? found->get<std::string>() : found->dump();
}

void print_json(const json& answer) {
  fmt::print("{}\n", answer.dump(2, ' ', false, json::error_handler_t::replace));
}

// What the port runs now.
void print_attached(const json& answer) {
  fmt::print("{}: {} runs, tag {}, {} instructions, {}; the kernel took {} us, the rest {} us\n",
             text_of(answer, "port"), text_of(answer, "program"), text_of(answer, "tag"),
             text_of(answer, "instructions"), text_of(answer, "engine"),
             text_of(answer, "kernel_us"), text_of(answer, "own_us"));
}

Result<void> attach(const XdpWords& parsed, bool replace) {
  const std::string_view name = replace ? "replace" : "attach";
  if (parsed.words.size() != 2)
    return usage_failure("{} takes one word: PORT,object=FILE[,program=NAME]", name);
  const auto wanted = parse_xdp_list(name, parsed.words[1]);
  if (!wanted) return wanted.error();
  if (parsed.verbose) set_log_level(LogLevel::debug);
  const auto object = load_xdp_object({.path = wanted->object_path, .program = wanted->program});
  if (!object) return object.error();
  const auto wired = object_to_wire(*object);
  if (!wired) return wired.error();
  const json request = {{"command", "xdp_attach"},
                        {"port", wanted->port},
                        {"replace", replace},
                        {"object", wired->description}};
  const auto answer = ask_daemon(parsed.client.control_path, request, wired->fds);
  if (!answer) return answer.error();
  parsed.client.as_json ? print_json(*answer) : print_attached(*answer);
  return {};
}

Result<void> detach(const XdpWords& parsed) {
  if (parsed.words.size() != 2) return usage_failure("detach takes one word: PORT");
  const auto answer = ask_daemon(parsed.client.control_path,
                                 {{"command", "xdp_detach"}, {"port", parsed.words[1]}}, {});
  if (!answer) return answer.error();
  return {};
}

Result<void> list(const XdpWords& parsed) {
  if (parsed.words.size() != 1) return usage_failure("list takes no word");
  const auto answer = ask_daemon(parsed.client.control_path, "xdp_list");
  if (!answer) return answer.error();
  if (parsed.client.as_json) return print_json(*answer), Result<void>{};
  std::vector<std::vector<std::string>> rows = {
      {"PORT", "PROGRAM", "TAG", "ENGINE", "INSTRUCTIONS", "MAPS", "OBJECT"}};
  for (const json& entry : answer->value("attached", json::array())) {
    std::string maps;
    for (const json& map : entry.value("maps", json::array()))
      maps += fmt::format("{}{} ({})", maps.empty() ? "" : ", ", text_of(map, "name"),
                          text_of(map, "type"));
    rows.push_back({text_of(entry, "port"), text_of(entry, "program"), text_of(entry, "tag"),
                    text_of(entry, "engine"), text_of(entry, "instructions"),
                    maps.empty() ? "-" : maps, text_of(entry, "object")});
  }
  if (rows.size() == 1) {
    fmt::print("no port runs a program: sluice xdp attach PORT,object=FILE\n");
    return {};
  }
  fmt::print("{}", table_text(rows, {false, false, false, false, true, false, false},
                              output_has_colour()));
  return {};
}

// Of a daemon's answer, which may be of another version.
std::vector<uint8_t> bytes_in(const json& hex) {
  if (!hex.is_string()) return {};
  return bytes_of_hex(hex.get_ref<const std::string&>()).value_or(std::vector<uint8_t>{});
}

MapTypes types_of(const json& answer) {
  return MapTypes(answer.value("map", json::object()).value("id", 0u));
}

// What programs wrote to a ring buffer or a perf event array: one line a record.
void print_records(const json& answer) {
  for (const json& record : answer["records"])
    fmt::print("worker {}: {}\n", text_of(record, "worker"), text_of(record, "bytes"));
  fmt::print("{} records, {} lost\n", answer["records"].size(), text_of(answer, "lost"));
}

void print_dump(const json& answer) {
  if (answer.contains("records") && answer["records"].is_array()) return print_records(answer);
  const MapTypes types = types_of(answer);
  std::vector<std::vector<std::string>> rows = {{"KEY", "WORKER", "VALUE"}};
  for (const json& entry : answer.value("entries", json::array())) {
    const json values = entry.value("values", json::array());
    for (size_t copy = 0; copy < values.size(); ++copy)
      rows.push_back({copy == 0 ? types.key_text(bytes_in(entry.value("key", json()))) : "",
                      values.size() > 1 ? std::to_string(copy) : "-",
                      types.value_text(bytes_in(values[copy]))});
  }
  fmt::print("{}", table_text(rows, {false, true, false}, output_has_colour()));
  fmt::print("{} entries{}\n", answer.value("entries", json::array()).size(),
             answer.value("truncated", false) ? " and more" : "");
}

// The daemon's answer, and what its bytes mean: "formatted" is as bpftool has it.
void print_typed_json(json answer) {
  const MapTypes types = types_of(answer);
  const auto parsed = [](const std::string& text) {
    return json::parse(text, nullptr, /*allow_exceptions=*/false);
  };
  for (json& entry : answer["entries"]) {
    json values = json::array();
    for (const json& value : entry.value("values", json::array()))
      values.push_back(parsed(types.value_text(bytes_in(value))));
    entry["formatted"] = {{"key", parsed(types.key_text(bytes_in(entry.value("key", json()))))},
                          {"values", std::move(values)}};
  }
  print_json(answer);
}

// The bytes that the words from `begin` to `end` say, in hexadecimal.
Result<std::string> hex_of_words(std::vector<std::string>::const_iterator begin,
                                 std::vector<std::string>::const_iterator end, size_t bytes_wanted,
                                 std::string_view what) {
  const auto bytes = parse_bytes(fmt::format("{}", fmt::join(begin, end, " ")), bytes_wanted);
  if (!bytes) return usage_failure("{}: {}", what, bytes.error().text);
  return hex_of(*bytes);
}

Result<json> map_request(const XdpWords& parsed, std::string_view command, const json& dump) {
  const auto& words = parsed.words;
  const auto key_at = std::find(words.begin(), words.end(), "key");
  const auto value_at = std::find(key_at, words.end(), "value");
  if (key_at != words.begin() + 4)
    return usage_failure("map {0} takes PORT MAP key KEY…: {0} vm0 limits key 10.0.0.1", command);
  const bool has_value = value_at != words.end();
  if (has_value != (command == "update"))
    return usage_failure("map {} takes {} value", command, has_value ? "no" : "a");
  auto end = words.end();
  json request = {
      {"command", fmt::format("xdp_map_{}", command)}, {"port", words[2]}, {"map", words[3]}};
  for (const char* flag : {"any", "noexist", "exist"}) {
    if (!has_value || *(end - 1) != flag) continue;
    request["flags"] = flag;
    --end;
    break;
  }
  const json map = dump.value("map", json::object());
  const auto key =
      hex_of_words(key_at + 1, has_value ? value_at : end, map.value("key_bytes", 0u), "key");
  if (!key) return key.error();
  request["key"] = *key;
  if (!has_value) return request;
  const auto value = hex_of_words(value_at + 1, end, map.value("value_bytes", 0u), "value");
  if (!value) return value.error();
  request["value"] = *value;
  return request;
}

Result<void> map_command(const XdpWords& parsed) {
  const auto& words = parsed.words;
  if (words.size() < 4) return usage_failure("map takes dump, update or delete, then PORT and MAP");
  const std::string& command = words[1];
  if (command != "dump" && command != "update" && command != "delete")
    return usage_failure("unknown word 'map {}': dump, update or delete", printable(command));
  const bool dumps = command == "dump";
  if (dumps && words.size() != 4) return usage_failure("map dump takes PORT and MAP");
  const json shape_request = {
      {"command", dumps ? "xdp_map_dump" : "xdp_map_show"}, {"port", words[2]}, {"map", words[3]}};
  const auto answer = ask_daemon(parsed.client.control_path, shape_request, {});
  if (!answer) return answer.error();
  if (dumps) {
    parsed.client.as_json ? print_typed_json(*answer) : print_dump(*answer);
    return {};
  }
  const auto request = map_request(parsed, command, *answer);
  if (!request) return request.error();
  const auto done = ask_daemon(parsed.client.control_path, *request, {});
  if (!done) return done.error();
  return {};
}

Result<void> run(const XdpWords& parsed) {
  const std::string& word = parsed.words.front();
  if (word == "attach" || word == "replace") return attach(parsed, word == "replace");
  if (word == "detach") return detach(parsed);
  if (word == "list") return list(parsed);
  if (word == "map") return map_command(parsed);
  static constexpr std::string_view kWords[] = {"attach", "replace", "detach", "list", "map"};
  return usage_failure("unknown word '{}'{} (allowed: {})", printable(word),
                       did_you_mean(word, kWords), fmt::join(kWords, ", "));
}

}  // namespace

int cmd_xdp(const Arguments& arguments) {
  const Result<XdpWords> parsed = parse_words(arguments);
  if (!parsed) return report_failure("xdp", parsed.error());
  if (parsed->client.wants_help) {
    fmt::print("{}", kHelp);
    return kExitFine;
  }
  if (parsed->words.empty())
    return report_failure("xdp", usage_failure("say what: attach, replace, detach, list or map "
                                               "(sluice xdp --help tells more)"));
  const Result<void> done = run(*parsed);
  return done ? kExitFine : report_failure("xdp", done.error());
}

}  // namespace sluice
