#include "xdp/map_lpm.h"

#include <bit>
#include <cerrno>

#include "xdp/map_kinds.h"

namespace sluice {

LpmTrieMap::LpmTrieMap(const MapShape& shape, const MapOptions& options,
                       std::unique_ptr<HashTable> table)
    : XdpMap(shape, options), table_(std::move(table)) {}

MapRef LpmTrieMap::ref() {
  MapRef ref = XdpMap::ref();
  ref.values = table_->values();
  return ref;
}

// False: longer than its data.
bool LpmTrieMap::copy_prefix(const void* key, Prefix* prefix) const {
  std::memcpy(prefix, key, shape().key_size);
  if (prefix->bits > data_bytes() * 8) return false;
  const uint32_t bits = prefix->bits;
  prefix->bits = data_bytes() * 8;
  cut(prefix, bits);
  return true;
}

// Makes it shorter and clears what is cut off.
void LpmTrieMap::cut(Prefix* prefix, uint32_t bits) const {
  uint32_t byte = bits / 8;
  if (bits % 8 != 0) {
    prefix->data[byte] = static_cast<uint8_t>(prefix->data[byte] & (0xff00U >> (bits % 8)));
    ++byte;
  }
  const uint32_t end = (prefix->bits + 7) / 8;
  if (byte < end) std::memset(prefix->data.data() + byte, 0, end - byte);
  prefix->bits = bits;
}

// The greatest length in use that is not beyond `at_most`; kNone if there is none.
uint32_t LpmTrieMap::find_used_length(uint32_t at_most) const {
  uint64_t mask = ~uint64_t{0} >> (63 - at_most % 64);
  for (uint32_t word = at_most / 64 + 1; word-- > 0;) {
    const uint64_t used = used_lengths_[word].load_acquire() & mask;
    if (used != 0) return word * 64 + 63 - static_cast<uint32_t>(std::countl_zero(used));
    mask = ~uint64_t{0};
  }
  return HashTable::kNone;
}

uint8_t* LpmTrieMap::lookup(const void* key) {
  Prefix prefix;
  if (!copy_prefix(key, &prefix)) return nullptr;
  uint32_t bits = find_used_length(prefix.bits);
  while (bits != HashTable::kNone) {  // each turn is shorter
    cut(&prefix, bits);
    const uint32_t node = table_->find(&prefix);
    if (node != HashTable::kNone) return table_->value(node);
    bits = bits == 0 ? HashTable::kNone : find_used_length(bits - 1);
  }
  return nullptr;
}

// Before the first prefix of that length can be found.
void LpmTrieMap::use_length(uint32_t bits) {
  if (prefixes_of_length_[bits]++ != 0) return;
  SharedWord<uint64_t>& word = used_lengths_[bits / 64];
  word.store_release(word.load_relaxed() | uint64_t{1} << (bits % 64));
}

void LpmTrieMap::drop_length(uint32_t bits) {
  if (--prefixes_of_length_[bits] != 0) return;
  SharedWord<uint64_t>& word = used_lengths_[bits / 64];
  word.store_release(word.load_relaxed() & ~(uint64_t{1} << (bits % 64)));
}

int LpmTrieMap::update(const void* key, const void* value, uint64_t flags) {
  Prefix prefix;
  if (flags > BPF_EXIST || !copy_prefix(key, &prefix)) return -EINVAL;
  std::lock_guard guard(lock_);
  const bool is_new = table_->find(&prefix) == HashTable::kNone;
  if (is_new) use_length(prefix.bits);
  int status = table_->update(&prefix, {.bytes = static_cast<const uint8_t*>(value)}, flags);
  if (is_new && status != 0) drop_length(prefix.bits);
  return status == -E2BIG ? -ENOSPC : status;  // the kernel's number for a full trie
}

int LpmTrieMap::erase(const void* key) {
  Prefix prefix;
  if (!copy_prefix(key, &prefix)) return -EINVAL;
  std::lock_guard guard(lock_);
  const int status = table_->erase(&prefix);
  if (status == 0) drop_length(prefix.bits);
  return status;
}

int LpmTrieMap::read(const void* key, void* value) {
  const uint8_t* from = lookup(key);
  if (from == nullptr) return -ENOENT;
  copy_out(value, from, shape().value_size);
  return 0;
}

int LpmTrieMap::next_key(const void* key, void* next) {
  Prefix prefix;
  const bool is_given = key != nullptr && copy_prefix(key, &prefix);
  return table_->next_key(is_given ? &prefix : nullptr, next);
}

MapResult make_lpm_trie(const MapShape& shape, const MapOptions& options) {
  if ((shape.flags & BPF_F_NO_PREALLOC) == 0) {
    return fail("it needs the flag BPF_F_NO_PREALLOC, as in the kernel: set it");
  }
  Result<std::unique_ptr<HashTable>> table = HashTable::create({.key_size = shape.key_size,
                                                                .value_size = shape.value_size,
                                                                .max_entries = shape.max_entries,
                                                                .populate = false});
  if (!table) return fail(table.error());
  return MapResult(std::make_unique<LpmTrieMap>(shape, options, std::move(*table)));
}

}  // namespace sluice
