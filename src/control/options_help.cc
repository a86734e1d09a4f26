// The text of `sluice run --help`, made from the schema.
#include "control/option_schema.h"

namespace sluice {
namespace {

constexpr size_t kTextColumn = 34;

// "    left              right", with the right side on a line of its own when left is long.
std::string help_line(size_t indent, std::string_view left, std::string_view right) {
  const std::string head = std::string(indent, ' ') + std::string(left);
  if (head.size() + 2 > kTextColumn) {
    return fmt::format("{}\n{}{}\n", head, std::string(kTextColumn, ' '), right);
  }
  return fmt::format("{:<{}}{}\n", head, kTextColumn, right);
}

std::string key_lines(std::span<const KeySchema> keys, size_t indent) {
  std::string text;
  for (const KeySchema& key : keys) {
    const std::string range =
        key.kind == ValueKind::number ? fmt::format(", {} to {}", key.min, key.max) : "";
    text += help_line(indent, fmt::format("{}={}", key.name, key.placeholder),
                      fmt::format("{}{}", key.sentence, range));
  }
  return text;
}

std::string value_lines() {
  std::string text;
  for (const KeySchema& value : value_schemas()) {
    const std::string left = value.kind == ValueKind::flag
                                 ? fmt::format("--{}", value.name)
                                 : fmt::format("--{} {}", value.name, value.placeholder);
    const std::string range =
        value.kind == ValueKind::number ? fmt::format(", {} to {}", value.min, value.max) : "";
    text += help_line(2, left, fmt::format("{}{}", value.sentence, range));
  }
  return text;
}

constexpr std::string_view kExamples =
    R"(sluice run: carry frames between virtual machines and the host

  One VM and one TAP interface:
    sluice run --vm vm0,socket=/run/sluice/vm0.sock --tap t0,ifname=tap0 --connect vm0:t0

  How QEMU or libvirt plugs into vm0 (prints and ends):
    sluice run --vm vm0,socket=/run/sluice/vm0.sock,queues=2 --help-qemu vm0

  Two VMs by a cable of their own; a TAP in another network namespace:
    sluice run --vm a,socket=/run/sluice/a.sock --vm b,socket=/run/sluice/b.sock --connect a:b
    sluice run --vm vm0,socket=/run/sluice/vm0.sock --tap t0,ifname=tap0,netns=blue --connect vm0:t0

  The same from a file, sluice run --config sluice.toml:
    connect = ["vm0:t0"]
    [[vm]]
    name = "vm0"
    socket = "/run/sluice/vm0.sock"
    [[tap]]
    name = "t0"
    ifname = "tap0"

Ports, each NAME,key=value,… and as often as needed (a comma in a value is written ",,"):
)";

}  // namespace

std::string list_help_text(std::string_view kind) {
  const ListSchema* list = find_list_schema(kind);
  SLUICE_ASSERT(list != nullptr);
  return key_lines(list->keys, 6);
}

std::string run_help_text() {
  std::string text(kExamples);
  for (const ListSchema& list : list_schemas()) {
    text += help_line(2, fmt::format("--{} NAME{}", list.name, list.keys.empty() ? "" : ",…"),
                      list.sentence);
    text += key_lines(list.keys, 6);
  }
  text += help_line(2, "--connect A:B", "a patch cable between two ports; each port takes one");
  text += "\nHow they are carried:\n" + value_lines();
  text += "\nOther:\n";
  text += help_line(2, "--config FILE",
                    "a TOML file with the same names; single values given here win");
  text += help_line(2, "--help-qemu NAME", "print what plugs a VMM into VM port NAME, and end");
  text += help_line(2, "-h, --help", "this text");
  text +=
      "\nPrints one line with the word ready when every socket listens. SIGINT or SIGTERM ends "
      "it.\n"
      "Exit status: 0 fine, 1 failed, 2 the options were wrong.\n";
  return text;
}

}  // namespace sluice
