#include "control/xdp_value_text.h"

#include <arpa/inet.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <optional>

#include "control/option_schema.h"

namespace sluice {
namespace {

using Bytes = std::vector<uint8_t>;

bool is_number_size(size_t bytes) { return bytes == 1 || bytes == 2 || bytes == 4 || bytes == 8; }

std::optional<int64_t> whole_number(const std::string& word, int base) {
  if (word.empty()) return std::nullopt;
  char* end = nullptr;
  errno = 0;
  const bool is_negative = word[0] == '-';
  const auto value = is_negative ? static_cast<uint64_t>(std::strtoll(word.c_str(), &end, base))
                                 : std::strtoull(word.c_str(), &end, base);
  if (errno != 0 || *end != '\0') return std::nullopt;
  return static_cast<int64_t>(value);
}

// Little endian, if the number fits: -1 is all ones.
std::optional<Bytes> number_bytes(const std::string& word, size_t count) {
  const auto value = is_number_size(count) ? whole_number(word, 0) : std::nullopt;
  if (!value) return std::nullopt;
  const bool is_negative = word[0] == '-';
  const int64_t above = count == 8 ? 0 : *value >> (count * 8 - (is_negative ? 1 : 0));
  if (above != 0 && !(is_negative && above == -1)) return std::nullopt;
  Bytes bytes(count);
  for (size_t i = 0; i < count; ++i) bytes[i] = static_cast<uint8_t>(*value >> (8 * i));
  return bytes;
}

std::optional<Bytes> address_bytes(const std::string& word, size_t count) {
  Bytes bytes(count);
  const int family = count == 4 ? AF_INET : AF_INET6;
  if ((count != 4 && count != 16) || inet_pton(family, word.c_str(), bytes.data()) != 1)
    return std::nullopt;
  return bytes;
}

// The key of an LPM trie: 32 bits of length, then the address.
std::optional<Bytes> prefix_bytes(const std::string& word, size_t count) {
  const size_t slash = word.find('/');
  if (slash == std::string::npos || count <= 4) return std::nullopt;
  const auto address = address_bytes(word.substr(0, slash), count - 4);
  const auto length = whole_number(word.substr(slash + 1), 10);
  if (!address || !length || *length < 0 || *length > static_cast<int64_t>((count - 4) * 8))
    return std::nullopt;
  Bytes bytes = {static_cast<uint8_t>(*length), 0, 0, 0};
  bytes.insert(bytes.end(), address->begin(), address->end());
  return bytes;
}

std::optional<Bytes> hardware_bytes(const std::string& word, size_t count) {
  if (count != 6 || word.size() != 17) return std::nullopt;
  Bytes bytes;
  for (size_t i = 0; i < 6; ++i) {
    const auto byte = whole_number(word.substr(3 * i, 2), 16);
    if (!byte || (i < 5 && word[3 * i + 2] != ':')) return std::nullopt;
    bytes.push_back(static_cast<uint8_t>(*byte));
  }
  return bytes;
}

std::optional<Bytes> single_bytes(std::span<const std::string> words, int base) {
  Bytes bytes;
  for (const std::string& word : words) {
    const auto byte = whole_number(word, base);
    if (!byte || *byte < 0 || *byte > 255) return std::nullopt;
    bytes.push_back(static_cast<uint8_t>(*byte));
  }
  return bytes;
}

}  // namespace

Result<Bytes> parse_value_text(std::span<const std::string> words, size_t bytes_wanted,
                               std::string_view what) {
  if (words.empty()) return usage_failure("no {}: give its {} bytes", what, bytes_wanted);
  std::optional<Bytes> bytes;
  if (words[0] == "hex") {
    bytes = single_bytes(words.subspan(1), 16);
  } else if (words.size() == 1) {
    for (auto* parse : {number_bytes, address_bytes, prefix_bytes, hardware_bytes})
      if (!bytes) bytes = parse(words[0], bytes_wanted);
  } else {
    bytes = single_bytes(words, 0);
  }
  if (bytes && bytes->size() == bytes_wanted) return *bytes;
  std::string text;
  for (const std::string& word : words) text += (text.empty() ? "" : " ") + word;
  return usage_failure(
      "{} '{}' does not make {} bytes: a number, an address, a prefix (of an LPM "
      "trie), {} bytes, or hex and {} bytes",
      what, printable(text), bytes_wanted, bytes_wanted, bytes_wanted);
}

std::string value_text(std::span<const uint8_t> bytes) {
  std::string text;
  for (const uint8_t byte : bytes) text += fmt::format("{}{:02x}", text.empty() ? "" : " ", byte);
  if (!is_number_size(bytes.size())) return text;
  uint64_t number = 0;
  for (size_t i = 0; i < bytes.size(); ++i) number |= uint64_t{bytes[i]} << (8 * i);
  return fmt::format("{}  ({})", text, number);
}

}  // namespace sluice
