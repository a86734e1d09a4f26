#include "control/xdp_map_json.h"

#include <cerrno>

#include "base/clock.h"
#include "base/limits.h"

namespace sluice {
namespace {

using nlohmann::json;

// More would be no answer for a person, and a long pause for the control thread.
constexpr size_t kEntriesMax = 100'000;

size_t rounded_up(size_t bytes) { return (bytes + 7) / 8 * 8; }

Result<std::vector<uint8_t>> bytes_at(const json& request, const char* key, size_t bytes_wanted) {
  const auto found = request.find(key);
  const auto bytes = found != request.end() && found->is_string()
                         ? bytes_of_hex(found->get_ref<const std::string&>())
                         : std::nullopt;
  if (!bytes) return fail("\"{}\" has to be bytes in hexadecimal", key);
  if (bytes->size() != bytes_wanted)
    return fail("the map's {} has {} bytes, not {}", key, bytes_wanted, bytes->size());
  return *bytes;
}

std::string reason_of(const XdpMap& map, int status) {
  switch (-status) {
    case E2BIG:
      return fmt::format("the map is full: it holds {} entries", map.shape().max_entries);
    case ENOENT:
      return "there is no such key";
    case EEXIST:
      return "the key is there already";
    case EPERM:
      return "the map is read-only";
    case EINVAL:
      return fmt::format("a map of type {} does not take that", map_type_name(map.shape().type));
    default:
      return errno_text(-status);
  }
}

}  // namespace

std::string hex_of(std::span<const uint8_t> bytes) {
  std::string text;
  for (const uint8_t byte : bytes) text += fmt::format("{:02x}", byte);
  return text;
}

std::optional<std::vector<uint8_t>> bytes_of_hex(std::string_view text) {
  const auto digit = [](char c) {
    if (c >= '0' && c <= '9') return c - '0';
    if (c >= 'a' && c <= 'f') return c - 'a' + 10;
    if (c >= 'A' && c <= 'F') return c - 'A' + 10;
    return -1;
  };
  if (text.size() % 2 != 0) return std::nullopt;
  std::vector<uint8_t> bytes;
  for (size_t i = 0; i < text.size(); i += 2) {
    const int high = digit(text[i]), low = digit(text[i + 1]);
    if (high < 0 || low < 0) return std::nullopt;
    bytes.push_back(static_cast<uint8_t>(high * 16 + low));
  }
  return bytes;
}

json map_json(const XdpMap& map) {
  const MapShape& shape = map.shape();
  return {{"name", shape.name},
          {"type", map_type_name(shape.type)},
          {"id", map.id()},
          {"key_bytes", shape.key_size},
          {"value_bytes", shape.value_size},
          {"max_entries", shape.max_entries},
          {"flags", shape.flags}};
}

bool holds_records(const XdpMap& map) {
  return map.shape().type == BPF_MAP_TYPE_RINGBUF ||
         map.shape().type == BPF_MAP_TYPE_PERF_EVENT_ARRAY;
}

// Bounded by what the map holds: it is emptied into memory of its own first.
json records_json(XdpMap& map) {
  json records = json::array();
  map.drain([&records](uint32_t worker, std::span<const uint8_t> bytes) {
    if (records.size() < kEntriesMax)
      records.push_back({{"worker", worker}, {"bytes", hex_of(bytes)}});
  });
  return {{"map", map_json(map)},
          {"entries", json::array()},
          {"records", std::move(records)},
          {"lost", map.dropped()}};
}

json dump_json(XdpMap& map) {
  if (holds_records(map)) return records_json(map);
  const size_t key_bytes = map.shape().key_size;
  std::vector<uint8_t> key(key_bytes), next(key_bytes), value(map.value_bytes());
  json entries = json::array();
  const size_t copy_bytes =
      map.copies() > 1 ? rounded_up(map.shape().value_size) : map.shape().value_size;
  int status = map.next_key(nullptr, next.data());
  // Keys that come and go meanwhile may show twice or not at all; more than fit are not shown.
  const size_t bound = std::min<size_t>(map.shape().max_entries, kEntriesMax);
  const uint64_t end_ns = monotonic_ns() + kXdpDumpNsMax;
  bool is_late = false;
  for (; status == 0 && entries.size() < bound; status = map.next_key(key.data(), next.data())) {
    is_late = monotonic_ns() > end_ns;
    if (is_late) break;
    key = next;
    if (map.read(key.data(), value.data()) != 0) continue;
    json values = json::array();
    for (uint32_t copy = 0; copy < map.copies(); ++copy)
      values.push_back(hex_of(std::span(value).subspan(copy * copy_bytes, map.shape().value_size)));
    entries.push_back({{"key", hex_of(key)}, {"values", std::move(values)}});
  }
  const bool is_truncated = is_late || (entries.size() == kEntriesMax && status == 0);
  return {{"map", map_json(map)}, {"entries", std::move(entries)}, {"truncated", is_truncated}};
}

Result<void> update_from_json(XdpMap& map, const json& request) {
  const auto key = bytes_at(request, "key", map.shape().key_size);
  if (!key) return key.error();
  const auto value = bytes_at(request, "value", map.shape().value_size);
  if (!value) return value.error();
  const std::string flags = request.value("flags", json("any")).is_string()
                                ? request.value("flags", std::string("any"))
                                : "";
  uint64_t bits = BPF_ANY;
  if (flags == "noexist")
    bits = BPF_NOEXIST;
  else if (flags == "exist")
    bits = BPF_EXIST;
  else if (flags != "any")
    return fail("\"flags\" is any, noexist or exist");
  std::vector<uint8_t> all(map.value_bytes());
  const size_t copy_bytes = map.copies() > 1 ? rounded_up(value->size()) : value->size();
  for (uint32_t copy = 0; copy < map.copies(); ++copy)
    std::copy(value->begin(), value->end(),
              all.begin() + static_cast<ptrdiff_t>(copy * copy_bytes));
  const int status = map.write(key->data(), all.data(), bits);
  if (status != 0) return fail("{}", reason_of(map, status));
  return {};
}

Result<void> delete_from_json(XdpMap& map, const json& request) {
  const auto key = bytes_at(request, "key", map.shape().key_size);
  if (!key) return key.error();
  const int status = map.erase(key->data());
  if (status != 0) return fail("{}", reason_of(map, status));
  return {};
}

}  // namespace sluice
