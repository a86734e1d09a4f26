// Keys and values of maps as a person writes and reads them.
//
// Written: one of
//   17, 0x11, -1            a number, little endian, for 1, 2, 4 or 8 bytes
//   10.0.0.0, fe80::1       an address, as it is in a packet, for 4 or 16 bytes
//   10.0.0.0/8              a prefix, for the key of an LPM trie (its length, then the address)
//   52:54:00:12:34:56       a hardware address, for 6 bytes
//   1 2 3 0x0f              bytes, decimal or 0x…, as bpftool takes them
//   hex 01 02 03 0f         bytes, hexadecimal, as bpftool takes them
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"

namespace sluice {

// `what` ("key" or "value") is for the message.
Result<std::vector<uint8_t>> parse_value_text(std::span<const std::string> words,
                                              size_t bytes_wanted, std::string_view what);

// Bytes in hexadecimal with blanks, and behind them the number that they may be.
std::string value_text(std::span<const uint8_t> bytes);

}  // namespace sluice
