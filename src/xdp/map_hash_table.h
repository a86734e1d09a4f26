// HashTable: keys to values, with readers that take no lock. What hash, LRU, LPM and devmap_hash
// maps are made of.
//
// All nodes exist from the start. A node is free, or in the chain of one bucket, or the spare of
// one stripe; buckets are spread over stripes, and a stripe's lock is held by whoever changes a
// chain. Replacing a value of a table that is not per CPU puts the stripe's spare in the chain's
// front and takes the old node out, which becomes the spare: a reader sees the old value or the new
// one, and a full table can still replace.
//
// How a reader can do without a lock. Nodes are taken out of chains and used again under its feet:
//   - A key's words are stored between two changes of the node's version; who compares a key reads
//     the version before and after, so it never finds a key that was not there.
//   - Taking a node out counts up the stripe's `changes`, before it is out and again before it can
//   be
//     used again. A walk that ended without a find is repeated if they moved meanwhile: it may have
//     begun before the new node of its key was there and come by after the old one was gone, or
//     have been led into another chain. A find needs no such check.
//
// LRU: lookups leave a mark on the node. A full table walks over its nodes as a clock does: a mark
// is taken off and the node spared, the first unmarked one is evicted, after kClockStepsMax steps
// the next one whatever its mark.
//
//   const uint32_t node = table->find(key);
//   if (node != HashTable::kNone) return table->value(node);
#pragma once

#include <array>
#include <memory>
#include <span>

#include "base/assert.h"
#include "xdp/map_lock.h"
#include "xdp/map_memory.h"
#include "xdp/map_ref.h"

namespace sluice {

class HashTable {
 public:
  struct Options {
    uint32_t key_size = 0;
    uint32_t value_size = 0;
    uint32_t max_entries = 0;
    uint32_t copies = 0;  // of a per-CPU value; 0: not per CPU, a value is replaced as a whole
    bool evicts = false;  // LRU
    bool populate = true;
  };
  static constexpr uint32_t kNone = UINT32_MAX;
  // A program's keys lie on its stack (512 bytes) or in a map; longer ones are refused.
  static constexpr uint32_t kKeyBytesMax = 512;
  // Nodes are numbered in 32 bits, and a bound on memory is wanted anyway.
  static constexpr uint32_t kEntriesMax = 1U << 28;

  // `which` copies an update of a per-CPU value means: the worker's, with zeros in the others of a
  // new value, or all of them, laid side by side.
  struct NewValue {
    const uint8_t* bytes = nullptr;
    bool all_copies = false;
    uint32_t copy = 0;
  };

  static Result<std::unique_ptr<HashTable>> create(const Options& options);

  uint32_t find(const void* key) const;
  void mark_used(uint32_t node);
  uint8_t* value(uint32_t node, uint32_t copy = 0) const {
    return values_ + copy * value_area_bytes_ + node * value_distance_;
  }
  // Where all values lie, all copies.
  ArrayLayout values() const;
  // 0, -EINVAL, -EEXIST, -ENOENT, or -E2BIG.
  int update(const void* key, const NewValue& value, uint64_t flags);
  int erase(const void* key);
  int next_key(const void* key, void* next) const;

  uint32_t count() const { return used_.load_relaxed(); }
  // Nodes that the map's user can see in any state, for walks that show their bound.
  uint32_t node_count() const { return node_count_; }
  // Whether `node` held a key just now.
  bool is_used(uint32_t node) const { return at(node).state.load_acquire() == kUsed; }
  uint64_t evictions() const { return evictions_.load_relaxed(); }

 private:
  enum State : uint32_t { kFree, kUsed };
  struct Node {
    SharedWord<uint32_t> next;
    SharedWord<uint32_t> version;  // odd: the key is being written
    SharedWord<uint32_t> hash;
    SharedWord<uint32_t> state;
    SharedWord<uint32_t> mark;
    uint32_t next_free;  // under free_lock_
  };                     // then the key's words, and, if it is not per CPU, the value
  static_assert(sizeof(Node) % 8 == 0);
  struct alignas(64) Stripe {
    SpinLock lock;
    SharedWord<uint32_t> changes{};
    uint32_t spare = kNone;
  };
  // A key in whole words, so that it is made of the program's bytes once.
  struct Key {
    std::array<uint64_t, kKeyBytesMax / 8> words;
    uint32_t hash;
  };

  static constexpr uint32_t kStripesMax = 256;
  static constexpr uint32_t kClockStepsMax = 128;
  // Each repeat means that a writer changed the stripe during the few steps of a walk.
  static constexpr uint32_t kWalksMax = 1000;

  explicit HashTable(const Options& options);
  void lay_out();
  Node& at(uint32_t node) const {
    return *reinterpret_cast<Node*>(nodes_ + size_t{node} * node_bytes_);
  }
  SharedWord<uint64_t>* key_words(uint32_t node) const { return words_at(&at(node) + 1); }
  Stripe& stripe_of(uint32_t hash) const { return stripes_[hash & bucket_mask_ & stripe_mask_]; }
  SharedWord<uint32_t>& bucket_of(uint32_t hash) const { return buckets_[hash & bucket_mask_]; }

  void make_key(const void* key, Key* made) const;
  bool holds(uint32_t node, const Key& key) const;
  uint32_t find_key(const Key& key) const;
  uint32_t find_locked(const Key& key) const;
  uint32_t take_node();
  uint32_t pop_free();
  void push_free(uint32_t node);
  uint32_t evict();
  bool try_evict(uint32_t node);
  void fill(uint32_t node, const Key& key, const NewValue& value);
  void put_value(uint32_t node, const NewValue& value, bool is_new);
  void link(uint32_t node, const Key& key);
  void unlink(uint32_t node, uint32_t hash);
  int update_present(uint32_t node, const Key& key, const NewValue& value, Stripe& stripe,
                     uint64_t flags);

  const Options options_;
  const uint32_t key_words_;
  MapMemory memory_;
  std::unique_ptr<Stripe[]> stripes_;
  uint32_t node_count_ = 0;
  uint32_t bucket_mask_ = 0;
  uint32_t stripe_mask_ = 0;
  uint64_t seed_ = 0;
  size_t node_bytes_ = 0;
  uint8_t* nodes_ = nullptr;
  SharedWord<uint32_t>* buckets_ = nullptr;
  uint8_t* values_ = nullptr;
  size_t value_distance_ = 0;    // from a node's value to the next node's
  size_t value_area_bytes_ = 0;  // from a copy to the next worker's

  SpinLock free_lock_;
  uint32_t free_head_ = kNone;  // under free_lock_
  uint32_t clock_hand_ = 0;     // under free_lock_
  SharedWord<uint32_t> used_{};
  SharedWord<uint64_t> evictions_{};
};

}  // namespace sluice
