// The entries of a map as JSON, and back: what `sluice xdp map` asks a daemon for. Bytes are
// hexadecimal; what they mean the client knows (from the map's BTF, which the kernel keeps).
#pragma once

#include <nlohmann/json.hpp>

#include "base/result.h"
#include "xdp/map.h"

namespace sluice {

// Type, sizes and flags.
nlohmann::json map_json(const XdpMap& map);
// {"map":{…},"entries":[{"key":"01000000","values":["…"]}],"truncated":false}: one value a copy, so
// several only of per-CPU maps. Of a ring buffer or a perf event array it is what programs have
// written since the last time, which is gone then: "records":[{"worker":0,"bytes":"…"}] and
// "lost", how many found no room in all.
nlohmann::json dump_json(XdpMap& map);
// {"key","value"} and perhaps "flags" ("any", "noexist", "exist"). One value is for every copy.
Result<void> update_from_json(XdpMap& map, const nlohmann::json& request);
Result<void> delete_from_json(XdpMap& map, const nlohmann::json& request);

std::string hex_of(std::span<const uint8_t> bytes);
// Nothing: this is no hexadecimal of whole bytes.
std::optional<std::vector<uint8_t>> bytes_of_hex(std::string_view text);

}  // namespace sluice
