// Keys and values of maps as text: how people read and write them.
//
// With a type (BTF, from the program's object file) bytes become JSON as `bpftool map dump` prints
// it: {"packets":5,"address":[10,0,0,1]}. Without one they are a list of bytes in hex. The other
// way round, text of one of these forms becomes bytes:
//
//   hex 0a 00 00 01      bytes, as bpftool takes them
//   10 0 0 1             bytes in decimal (or 0x0a), as many as there must be
//   1234  -1  0x4d2      a number, where 1, 2, 4 or 8 bytes are wanted; of this machine's order
//   10.0.0.1  fe80::1    an address, where 4 or 16 bytes are wanted; of the network's order
//   52:54:00:12:34:56    a hardware address
//   10.0.0.0/8           a prefix, for the key of an LPM trie: its length, then the address
//
// BTF is foreign data: what does not fit into the bytes, or nests too deeply, is an error. Not for
// the data path.
//
//   Result<std::string> text = format_typed(*types, value_type_id, value);
//   Result<std::vector<uint8_t>> key = parse_bytes("10.0.0.0/8", shape.key_size);
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

struct btf;

namespace sluice {

Result<std::string> format_typed(const btf& types, uint32_t type_id,
                                 std::span<const uint8_t> bytes);
// ["0x0a","0x00"]
std::string format_bytes(std::span<const uint8_t> bytes);

Result<std::vector<uint8_t>> parse_bytes(std::string_view text, size_t size);

}  // namespace sluice
