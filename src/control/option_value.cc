// Values of options: what each kind takes, and the sentences for what it does not.
#include <algorithm>
#include <charconv>

#include "control/option_schema.h"

namespace sluice {
namespace {

// sun_path of sockaddr_un, without its final zero.
constexpr size_t kSocketPathBytesMax = 107;
// IFNAMSIZ, without its final zero.
constexpr size_t kInterfaceBytesMax = 15;
constexpr size_t kTextBytesMax = 4095;
constexpr size_t kPrintedBytesMax = 160;
constexpr uint32_t kDescriptorMin = 3;  // below are the standard streams
constexpr uint32_t kDescriptorMax = 1'048'575;
constexpr uint32_t kCpuMax = 1023;
constexpr size_t kNearWordBytesMax = 32;

bool is_printable(unsigned char c) { return c >= 0x20 && c != 0x7f; }

// A decimal (or octal) number and nothing else.
bool parse_number(std::string_view text, int number_base, uint64_t& out) {
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, out, number_base);
  return !text.empty() && error == std::errc{} && stop == end;
}

// `text` split at each `separator`; at most 2048 pieces, which is more than any list may have.
std::vector<std::string_view> split(std::string_view text, char separator) {
  std::vector<std::string_view> pieces;
  for (size_t count = 0; count < 2048; ++count) {
    const size_t at = text.find(separator);
    pieces.push_back(text.substr(0, at));
    if (at == std::string_view::npos) break;
    text.remove_prefix(at + 1);
  }
  return pieces;
}

bool add_once(std::vector<int>& numbers, uint64_t number) {
  if (std::ranges::find(numbers, static_cast<int>(number)) != numbers.end()) return false;
  numbers.push_back(static_cast<int>(number));
  return true;
}

bool parse_descriptors(std::string_view text, std::vector<int>& out) {
  for (const std::string_view piece : split(text, ':')) {
    uint64_t number = 0;
    if (!parse_number(piece, 10, number)) return false;
    if (number < kDescriptorMin || number > kDescriptorMax) return false;
    if (!add_once(out, number)) return false;
  }
  return out.size() <= kQueuePairsMax;
}

bool parse_cpus(std::string_view text, std::vector<int>& out) {
  for (const std::string_view piece : split(text, ',')) {
    const size_t dash = piece.find('-');
    uint64_t first = 0;
    if (!parse_number(piece.substr(0, dash), 10, first)) return false;
    uint64_t last = first;
    if (dash != std::string_view::npos && !parse_number(piece.substr(dash + 1), 10, last)) {
      return false;
    }
    if (last < first || last > kCpuMax) return false;
    for (uint64_t cpu = first; cpu <= last; ++cpu) {  // at most kCpuMax + 1
      if (!add_once(out, cpu)) return false;
    }
  }
  return true;
}

// Six bytes; not zero and not a group's, since it is to be a source address.
bool parse_mac(std::string_view text, MacAddress& out) {
  if (text.size() != 17) return false;
  for (size_t i = 0; i < out.size(); ++i) {
    if (i > 0 && text[3 * i - 1] != ':') return false;
    const char* begin = text.data() + 3 * i;
    const auto [stop, error] = std::from_chars(begin, begin + 2, out[i], 16);
    if (error != std::errc{} || stop != begin + 2) return false;
  }
  return out != MacAddress{} && (out[0] & 1) == 0;
}

// What the kernel takes, without '%', with which the kernel would choose a name of its own.
bool is_interface_name(std::string_view text) {
  if (text.empty() || text.size() > kInterfaceBytesMax || text == "." || text == "..") return false;
  return std::ranges::none_of(
      text, [](char c) { return c <= 0x20 || c == 0x7f || c == '/' || c == ':' || c == '%'; });
}

bool fits(const KeySchema& key, std::string_view text, OptionValue& value) {
  switch (key.kind) {
    case ValueKind::text:
      return !text.empty() && text.size() <= kTextBytesMax;
    case ValueKind::path:
      return !text.empty() && text.size() <= kSocketPathBytesMax;
    case ValueKind::interface:
      return is_interface_name(text);
    case ValueKind::number:
      return parse_number(text, 10, value.number) && value.number >= key.min &&
             value.number <= key.max;
    case ValueKind::permissions:
      return parse_number(text, 8, value.number) && value.number <= key.max;
    case ValueKind::word:
      return std::ranges::find(key.words, text) != key.words.end();
    case ValueKind::flag:
      value.number = text == "on";
      return text == "on" || text == "off";
    case ValueKind::mac:
      return parse_mac(text, value.mac);
    case ValueKind::descriptors:
      return parse_descriptors(text, value.numbers);
    case ValueKind::cpus:
      return parse_cpus(text, value.numbers);
  }
  return false;
}

// Edits (insert, remove, replace, swap neighbours) that turn a into b; both are short.
size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::vector<size_t>> cost(a.size() + 1, std::vector<size_t>(b.size() + 1));
  for (size_t i = 0; i <= a.size(); ++i) cost[i][0] = i;
  for (size_t j = 0; j <= b.size(); ++j) cost[0][j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t replaced = cost[i - 1][j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1);
      cost[i][j] = std::min({cost[i - 1][j] + 1, cost[i][j - 1] + 1, replaced});
      const bool swapped =
          i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] && a[i - 1] != b[j - 1];
      if (swapped) cost[i][j] = std::min(cost[i][j], cost[i - 2][j - 2] + 1);
    }
  }
  return cost[a.size()][b.size()];
}

}  // namespace

std::string printable(std::string_view text) {
  std::string out;
  for (const char c : text.substr(0, kPrintedBytesMax)) {
    if (is_printable(static_cast<unsigned char>(c))) {
      out += c;
    } else {
      out += fmt::format("\\x{:02x}", static_cast<unsigned char>(c));
    }
  }
  if (text.size() > kPrintedBytesMax) out += "…";
  return out;
}

std::string did_you_mean(std::string_view word, std::span<const std::string_view> candidates) {
  if (word.empty() || word.size() > kNearWordBytesMax) return "";
  // A third of the word may be wrong: nearer is a slip, farther is another word.
  size_t nearest = std::max<size_t>(1, word.size() / 3) + 1;
  std::string_view best;
  for (const std::string_view candidate : candidates) {
    if (candidate.size() > kNearWordBytesMax) continue;
    const size_t distance = edit_distance(word, candidate);
    if (distance < nearest && distance < word.size()) {
      nearest = distance;
      best = candidate;
    }
  }
  return best.empty() ? "" : fmt::format("; did you mean '{}'?", best);
}

std::string allowed_values(const KeySchema& key) {
  switch (key.kind) {
    case ValueKind::text:
      return "text of 1 to 4095 printable bytes";
    case ValueKind::path:
      return "a path of 1 to 107 bytes, the kernel's bound for sockets";
    case ValueKind::interface:
      return "an interface's name: 1 to 15 bytes without '/', ':', '%' and blanks";
    case ValueKind::number:
      return fmt::format("a number from {} to {}", key.min, key.max);
    case ValueKind::permissions:
      return "octal permission bits from 0 to 0777, like 0660";
    case ValueKind::word:
      return fmt::format("one of {}", fmt::join(key.words, ", "));
    case ValueKind::flag:
      return "on or off";
    case ValueKind::mac:
      return "a unicast address of six hexadecimal bytes, like 52:54:00:12:34:56";
    case ValueKind::descriptors:
      return "numbers of open descriptors from 3 on, each once, like 3:4";
    case ValueKind::cpus:
      return "CPU numbers from 0 to 1023, each once, like 0,2-3";
  }
  return "";
}

Result<OptionValue> parse_option_value(const KeySchema& key, std::string_view text,
                                       std::string_view where) {
  OptionValue value;
  value.text = text;
  if (std::ranges::all_of(text, is_printable) && fits(key, text, value)) return value;
  std::string hint = key.kind == ValueKind::word ? did_you_mean(text, key.words) : "";
  if (key.kind == ValueKind::path && !text.empty()) {
    hint = fmt::format("; this one has {}", text.size());
  }
  return usage_failure("{}{}={} is not allowed: give {}{}", where, key.name, printable(text),
                       allowed_values(key), hint);
}

Failure unknown_key(std::span<const KeySchema> keys, std::string_view name,
                    std::string_view where) {
  std::vector<std::string_view> names;
  for (const KeySchema& key : keys) names.push_back(key.name);
  return usage_failure("{}unknown key '{}'{} (allowed: {})", where, printable(name),
                       did_you_mean(name, names),
                       names.empty() ? "none" : fmt::format("{}", fmt::join(names, ", ")));
}

Result<void> check_port_name(std::string_view name, std::string_view where) {
  const auto is_letter = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
           c == '-' || c == '.';
  };
  const bool fine = !name.empty() && name.size() <= 32 && std::ranges::all_of(name, is_letter) &&
                    name[0] != '-' && name[0] != '.';
  if (fine) return {};
  return usage_failure("{}name '{}' is not allowed: give 1 to 32 letters, digits, '_', '-' or '.'",
                       where, printable(name));
}

}  // namespace sluice
