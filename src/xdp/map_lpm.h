// LpmTrieMap: the value of the longest prefix that a key begins with.
//
// A key is a length in bits (32 bits, of this machine's order), then the data, of which the bits
// beyond the length do not count. Not a trie, in spite of its name: a hash table of (length, data),
// and a set of the lengths that are in use. A lookup asks the table for each of them from the
// longest that the key allows; real tables use few lengths, and the readers of HashTable take no
// lock, which a trie whose nodes are used again could not promise.
//
// Prefixes are kept, and dumped, with the bits beyond their length cleared; the kernel dumps them
// as they were given.
#pragma once

#include <array>

#include "xdp/map.h"
#include "xdp/map_hash_table.h"

namespace sluice {

class LpmTrieMap : public XdpMap {
 public:
  static constexpr uint32_t kDataBytesMax = 256;  // the kernel's bound

  LpmTrieMap(const MapShape& shape, const MapOptions& options, std::unique_ptr<HashTable> table);
  MapRef ref() override;
  uint8_t* lookup(const void* key) override;
  int update(const void* key, const void* value, uint64_t flags) override;
  int erase(const void* key) override;
  int read(const void* key, void* value) override;
  int next_key(const void* key, void* next) override;

 private:
  static constexpr uint32_t kBitsMax = kDataBytesMax * 8;
  struct Prefix {
    uint32_t bits;
    std::array<uint8_t, kDataBytesMax> data;
  };
  uint32_t data_bytes() const { return shape().key_size - 4; }
  bool copy_prefix(const void* key, Prefix* prefix) const;
  void cut(Prefix* prefix, uint32_t bits) const;
  uint32_t find_used_length(uint32_t at_most) const;
  void use_length(uint32_t bits);
  void drop_length(uint32_t bits);

  const std::unique_ptr<HashTable> table_;
  SpinLock lock_;                                            // between writers
  std::array<uint32_t, kBitsMax + 1> prefixes_of_length_{};  // under lock_
  // Bit i: there may be a prefix of i bits.
  std::array<SharedWord<uint64_t>, kBitsMax / 64 + 1> used_lengths_{};
};

}  // namespace sluice
