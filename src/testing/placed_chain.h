// PlacedChain: the buffers of a ChainBuilder in a guest's memory, as either fake driver keeps them
// while the device has them. What not: how descriptors name them, which is the format's.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "testing/chain_builder.h"
#include "testing/fake_guest_memory.h"

namespace sluice {

struct PlacedChain {
  struct Buffer {
    uint64_t address = 0;
    uint32_t bytes = 0;
    bool is_writable = false;
    bool is_owned = false;  // allocated here, and given back
  };

  // A buffer for each piece; readable ones are filled.
  static PlacedChain place(FakeGuestMemory& guest, const ChainBuilder& chain) {
    PlacedChain placed;
    for (const auto& piece : chain.pieces()) {
      if (piece.address) {
        placed.buffers.push_back({*piece.address, piece.bytes, piece.is_writable, false});
        continue;
      }
      const uint64_t address = guest.allocate(std::max<uint64_t>(piece.bytes, 1));
      if (!piece.is_writable) guest.write(address, piece.content);
      placed.buffers.push_back({address, piece.bytes, piece.is_writable, true});
    }
    return placed;
  }
  // An indirect table of these bytes: it becomes the last buffer.
  void place_table(FakeGuestMemory& guest, const ChainBuilder& chain,
                   std::span<const uint8_t> table) {
    const bool is_owned = !chain.table_address();
    const uint64_t address = is_owned ? guest.allocate(table.size()) : *chain.table_address();
    guest.write(address, table);
    buffers.push_back({address, static_cast<uint32_t>(table.size()), false, is_owned});
  }

  uint64_t writable_bytes() const {
    uint64_t sum = 0;
    for (const Buffer& buffer : buffers) sum += buffer.is_writable ? buffer.bytes : 0;
    return sum;
  }
  // The first `bytes` of what the device could write to; buffers at given addresses are left out.
  std::vector<uint8_t> written(FakeGuestMemory& guest, uint64_t bytes) const {
    std::vector<uint8_t> data;
    for (const Buffer& buffer : buffers) {
      if (!buffer.is_writable || !buffer.is_owned || data.size() >= bytes) continue;
      const auto run =
          guest.read(buffer.address, std::min<uint64_t>(buffer.bytes, bytes - data.size()));
      data.insert(data.end(), run.begin(), run.end());
    }
    return data;
  }
  void give_back(FakeGuestMemory& guest) {
    for (const Buffer& buffer : buffers) {
      if (buffer.is_owned) guest.give_back(buffer.address, std::max<uint64_t>(buffer.bytes, 1));
    }
    buffers.clear();
  }

  std::vector<Buffer> buffers;
};

}  // namespace sluice
