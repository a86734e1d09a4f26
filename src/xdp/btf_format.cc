#include "xdp/btf_format.h"

#include <arpa/inet.h>
#include <bpf/btf.h>

#include <algorithm>
#include <charconv>
#include <cstring>
#include <optional>
#include <sstream>

namespace sluice {

namespace {

// Deeper types are a mistake or an attack.
constexpr int kDepthMax = 32;
// Text of one value; an array of arrays can name far more than its bytes.
constexpr size_t kTextBytesMax = 16 << 20;

std::string quoted(std::string_view text) {
  std::string result = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') result += '\\';
    result += c;
  }
  return result + '"';
}

class Writer {
 public:
  Writer(const btf& types, std::span<const uint8_t> bytes) : types_(types), bytes_(bytes) {}

  // At `bit` of the value; `bit_size` of a bit field, or 0. False: `problem` says why.
  bool write(uint32_t type_id, uint64_t bit, uint32_t bit_size, int depth) {
    if (depth > kDepthMax || text.size() > kTextBytesMax)
      return refuse("its type nests too deeply");
    const int plain_id = ::btf__resolve_type(&types_, type_id);
    const btf_type* type = plain_id < 0 ? nullptr : ::btf__type_by_id(&types_, plain_id);
    if (type == nullptr) return refuse("its type is not in the BTF");
    switch (btf_kind(type)) {
      case BTF_KIND_INT:
        return write_int(*type, bit, bit_size);
      case BTF_KIND_ENUM:
      case BTF_KIND_ENUM64:
        return write_enum(*type, bit, bit_size);
      case BTF_KIND_PTR:
        return write_number(bit, 64,
                            [&](uint64_t word) { text += fmt::format("\"0x{:x}\"", word); });
      case BTF_KIND_FLOAT:
        return write_float(*type, bit);
      case BTF_KIND_ARRAY:
        return write_array(*btf_array(type), bit, depth);
      case BTF_KIND_STRUCT:
      case BTF_KIND_UNION:
        return write_members(*type, bit, depth);
      case BTF_KIND_VAR:
        return write(type->type, bit, bit_size, depth + 1);
      default:
        return refuse("its type is of a kind that no value has");
    }
  }

  std::string text;
  const char* problem = nullptr;

 private:
  bool refuse(const char* why) {
    problem = why;
    return false;
  }

  // Up to 64 bits that begin at any bit.
  std::optional<uint64_t> load(uint64_t bit, uint32_t bit_size) const {
    const uint64_t end = bit + bit_size;
    if (bit_size == 0 || bit_size > 64 || end < bit || (end + 7) / 8 > bytes_.size()) return {};
    uint64_t word = 0;
    for (uint32_t i = 0; i < bit_size;) {
      const uint64_t at = bit + i;
      const uint32_t in_byte = std::min<uint32_t>(8 - at % 8, bit_size - i);
      const uint64_t part = (bytes_[at / 8] >> (at % 8)) & ((1U << in_byte) - 1);
      word |= part << i;
      i += in_byte;
    }
    return word;
  }

  template <typename Put>
  bool write_number(uint64_t bit, uint32_t bit_size, Put put) {
    const std::optional<uint64_t> word = load(bit, bit_size);
    if (!word) return refuse("its type is larger than the value");
    put(*word);
    return true;
  }

  static int64_t with_sign(uint64_t word, uint32_t bit_size) {
    return static_cast<int64_t>(word << (64 - bit_size)) >> (64 - bit_size);
  }

  bool write_int(const btf_type& type, uint64_t bit, uint32_t bit_size) {
    const uint32_t size = bit_size != 0 ? bit_size : btf_int_bits(&type);
    if (size > 64) {  // __int128 is rare enough to be shown as bytes
      const uint64_t begin = bit / 8;
      if (begin + size / 8 > bytes_.size()) return refuse("its type is larger than the value");
      text += format_bytes(bytes_.subspan(begin, size / 8));
      return true;
    }
    return write_number(bit + btf_int_offset(&type), size, [&](uint64_t word) {
      const uint8_t encoding = btf_int_encoding(&type);
      if ((encoding & BTF_INT_BOOL) != 0) {
        text += word != 0 ? "true" : "false";
      } else if ((encoding & BTF_INT_SIGNED) != 0) {
        text += fmt::format("{}", with_sign(word, size));
      } else {
        text += fmt::format("{}", word);
      }
    });
  }

  bool write_enum(const btf_type& type, uint64_t bit, uint32_t bit_size) {
    const uint32_t size = bit_size != 0 ? bit_size : type.size * 8;
    return write_number(bit, size, [&](uint64_t word) {
      const uint64_t mask = size == 64 ? ~uint64_t{0} : (uint64_t{1} << size) - 1;
      for (uint32_t i = 0; i < btf_vlen(&type); ++i) {
        const bool is_wide = btf_kind(&type) == BTF_KIND_ENUM64;
        const uint64_t value = is_wide ? btf_enum64_value(&btf_enum64(&type)[i])
                                       : static_cast<uint64_t>(int64_t{btf_enum(&type)[i].val});
        if ((value & mask) != word) continue;
        const uint32_t name = is_wide ? btf_enum64(&type)[i].name_off : btf_enum(&type)[i].name_off;
        text += quoted(name_at(name));
        return;
      }
      text += fmt::format("{}", word);
    });
  }

  bool write_float(const btf_type& type, uint64_t bit) {
    return write_number(bit, type.size * 8, [&](uint64_t word) {
      double number = 0;
      if (type.size == sizeof(float)) {
        float narrow = 0;
        std::memcpy(&narrow, &word, sizeof narrow);
        number = narrow;
      } else {
        std::memcpy(&number, &word, sizeof number);
      }
      text += fmt::format("{}", number);
    });
  }

  // An array of char that holds printable text up to its first zero is shown as text.
  bool write_text(const struct btf_array& array, uint64_t bit) {
    const int element_id = ::btf__resolve_type(&types_, array.type);
    const btf_type* element = element_id < 0 ? nullptr : ::btf__type_by_id(&types_, element_id);
    if (element == nullptr || !btf_is_int(element) || element->size != 1 || bit % 8 != 0 ||
        name_at(element->name_off) != "char" || bit / 8 + array.nelems > bytes_.size()) {
      return false;
    }
    const auto* begin = reinterpret_cast<const char*>(bytes_.data()) + bit / 8;
    const std::string_view all(begin, array.nelems);
    const std::string_view shown = all.substr(0, all.find('\0'));
    const bool is_text =
        all.find('\0') != std::string_view::npos &&
        std::all_of(shown.begin(), shown.end(), [](char c) { return c >= 0x20 && c < 0x7f; });
    if (is_text) text += quoted(shown);
    return is_text;
  }

  bool write_array(const struct btf_array& array, uint64_t bit, int depth) {
    if (write_text(array, bit)) return true;
    const int64_t element_bytes = ::btf__resolve_size(&types_, array.type);
    if (element_bytes < 0) return refuse("its type has an array of things without a size");
    text += '[';
    for (uint32_t i = 0; i < array.nelems; ++i) {
      if (i != 0) text += ',';
      const uint64_t at = bit + uint64_t{i} * static_cast<uint64_t>(element_bytes) * 8;
      if (!write(array.type, at, 0, depth + 1)) return false;
    }
    text += ']';
    return true;
  }

  bool write_members(const btf_type& type, uint64_t bit, int depth) {
    text += '{';
    for (uint32_t i = 0; i < btf_vlen(&type); ++i) {
      const btf_member& member = btf_members(&type)[i];
      const std::string_view name = name_at(member.name_off);
      if (i != 0) text += ',';
      text += quoted(name.empty() ? "(anon)" : name) + ':';
      const uint64_t at = bit + btf_member_bit_offset(&type, i);
      if (!write(member.type, at, btf_member_bitfield_size(&type, i), depth + 1)) return false;
    }
    text += '}';
    return true;
  }

  std::string_view name_at(uint32_t offset) const {
    const char* name = ::btf__name_by_offset(&types_, offset);
    return name != nullptr ? name : "";
  }

  const btf& types_;
  const std::span<const uint8_t> bytes_;
};

using Bytes = std::vector<uint8_t>;

std::optional<uint64_t> parse_number(std::string_view word, int base) {
  if (base == 10 && (word.starts_with("0x") || word.starts_with("0X"))) {
    word.remove_prefix(2);
    base = 16;
  }
  uint64_t number = 0;
  const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), number, base);
  if (error != std::errc() || end != word.data() + word.size() || word.empty()) return {};
  return number;
}

std::optional<Bytes> parse_list(std::span<const std::string> words, int base) {
  Bytes bytes;
  for (const std::string& word : words) {
    const std::optional<uint64_t> number = parse_number(word, base);
    if (!number || *number > 0xff) return {};
    bytes.push_back(static_cast<uint8_t>(*number));
  }
  return bytes;
}

std::optional<Bytes> parse_integer(const std::string& word, size_t size) {
  if (size != 1 && size != 2 && size != 4 && size != 8) return {};
  const bool is_negative = word.starts_with('-');
  const std::optional<uint64_t> number =
      parse_number(std::string_view(word).substr(is_negative ? 1 : 0), 10);
  if (!number) return {};
  const size_t bits = size * 8;
  if (is_negative ? *number > uint64_t{1} << (bits - 1) : bits < 64 && *number >> bits != 0) {
    return {};
  }
  const uint64_t value = is_negative ? -*number : *number;
  Bytes bytes(size);
  std::memcpy(bytes.data(), &value, size);  // the low bytes come first
  return bytes;
}

std::optional<Bytes> parse_address(const std::string& word) {
  const bool is_v6 = word.find(':') != std::string::npos;
  Bytes bytes(is_v6 ? 16 : 4);
  if (::inet_pton(is_v6 ? AF_INET6 : AF_INET, word.c_str(), bytes.data()) != 1) return {};
  return bytes;
}

// 52:54:00:12:34:56
std::optional<Bytes> parse_hardware_address(const std::string& word) {
  constexpr size_t kTextBytes = 17;
  if (word.size() != kTextBytes) return {};
  Bytes bytes;
  for (size_t at = 0; at < kTextBytes; at += 3) {
    const std::optional<uint64_t> byte = parse_number(std::string_view(word).substr(at, 2), 16);
    if (!byte || (at + 2 < kTextBytes && word[at + 2] != ':')) return {};
    bytes.push_back(static_cast<uint8_t>(*byte));
  }
  return bytes;
}

std::optional<Bytes> parse_prefix(const std::string& word) {
  const size_t slash = word.find('/');
  if (slash == std::string::npos) return {};
  const std::optional<Bytes> address = parse_address(word.substr(0, slash));
  const std::optional<uint64_t> length = parse_number(std::string_view(word).substr(slash + 1), 10);
  if (!address || !length || *length > address->size() * 8) return {};
  const auto bits = static_cast<uint32_t>(*length);
  Bytes bytes(4 + address->size());
  std::memcpy(bytes.data(), &bits, 4);
  std::copy(address->begin(), address->end(), bytes.begin() + 4);
  return bytes;
}

std::optional<Bytes> parse_words(std::span<const std::string> words, size_t size) {
  if (words.empty()) return {};
  if (words[0] == "hex") return parse_list(words.subspan(1), 16);
  if (words.size() == 1) {
    for (const std::optional<Bytes>& bytes :
         {parse_integer(words[0], size), parse_prefix(words[0]), parse_address(words[0]),
          parse_hardware_address(words[0])}) {
      if (bytes) return bytes;
    }
  }
  return parse_list(words, 10);
}

}  // namespace

Result<std::string> format_typed(const btf& types, uint32_t type_id,
                                 std::span<const uint8_t> bytes) {
  Writer writer(types, bytes);
  if (!writer.write(type_id, 0, 0, 0)) {
    return fail("a value of {} bytes cannot be shown by its type: {}", bytes.size(),
                writer.problem);
  }
  return writer.text;
}

std::string format_bytes(std::span<const uint8_t> bytes) {
  std::string text = "[";
  for (size_t i = 0; i < bytes.size(); ++i) {
    text += fmt::format("{}\"0x{:02x}\"", i == 0 ? "" : ",", bytes[i]);
  }
  return text + "]";
}

Result<std::vector<uint8_t>> parse_bytes(std::string_view text, size_t size) {
  std::istringstream stream{std::string(text)};
  std::vector<std::string> words;
  for (std::string word; stream >> word;) words.push_back(word);
  std::optional<Bytes> bytes = parse_words(words, size);
  if (!bytes) {
    return usage_failure(
        "\"{}\" is no value: write \"hex 01 02\", bytes in decimal, a number, an "
        "address (of IP or of hardware), or a prefix",
        text);
  }
  if (bytes->size() != size) {
    return usage_failure("\"{}\" has {} bytes: {} are needed", text, bytes->size(), size);
  }
  return std::move(*bytes);
}

}  // namespace sluice
