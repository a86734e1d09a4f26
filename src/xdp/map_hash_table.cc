#include "xdp/map_hash_table.h"

#include <linux/bpf.h>
#include <sys/random.h>

#include <algorithm>
#include <bit>
#include <cerrno>

namespace sluice {

namespace {

constexpr size_t kCacheLineBytes = 64;

}  // namespace

HashTable::HashTable(const Options& options)
    : options_(options), key_words_(static_cast<uint32_t>(value_stride(options.key_size) / 8)) {
  const uint32_t bucket_count = std::bit_ceil(options.max_entries);
  bucket_mask_ = bucket_count - 1;
  stripe_mask_ = std::min(bucket_count, kStripesMax) - 1;
  node_count_ = options.max_entries + (options.copies == 0 ? stripe_mask_ + 1 : 0);
}

Result<std::unique_ptr<HashTable>> HashTable::create(const Options& options) {
  SLUICE_ASSERT(options.max_entries > 0 && options.key_size > 0);
  if (options.key_size > kKeyBytesMax || options.max_entries > kEntriesMax) {
    return fail("keys of {} bytes and {} entries: at most {} and {} are possible", options.key_size,
                options.max_entries, kKeyBytesMax, kEntriesMax);
  }
  std::unique_ptr<HashTable> table(new HashTable(options));
  table->lay_out();
  const size_t bytes = static_cast<size_t>(table->values_ - table->nodes_) +
                       table->value_area_bytes_ * options.copies;
  Result<MapMemory> memory = MapMemory::create(bytes, options.populate);
  if (!memory) return fail(memory.error());
  table->memory_ = std::move(*memory);
  // The keys of guests' packets must not know into which bucket they fall.
  if (::getrandom(&table->seed_, sizeof table->seed_, 0) != sizeof table->seed_) {
    return fail("the kernel gives no random number: {}", errno_text(errno));
  }
  table->lay_out();
  const uint32_t bucket_count = table->bucket_mask_ + 1;
  for (uint32_t i = 0; i < bucket_count; ++i) table->buckets_[i].store_relaxed(kNone);
  table->stripes_ = std::make_unique<Stripe[]>(table->stripe_mask_ + 1);
  for (uint32_t node = table->node_count_; node-- > 0;) {
    table->at(node).next.store_relaxed(kNone);
    if (node >= options.max_entries) {
      table->stripes_[node - options.max_entries].spare = node;
    } else {
      table->at(node).next_free = table->free_head_;
      table->free_head_ = node;
    }
  }
  return Result<std::unique_ptr<HashTable>>(std::move(table));
}

// Nodes, then buckets, then per-CPU values. Called once without memory, to see how much is needed.
void HashTable::lay_out() {
  const size_t value_bytes = value_stride(options_.value_size);
  const size_t head_bytes = sizeof(Node) + key_words_ * size_t{8};
  node_bytes_ = head_bytes + (options_.copies == 0 ? value_bytes : 0);
  nodes_ = memory_.data();
  const size_t buckets_at = round_up(node_bytes_ * node_count_, kCacheLineBytes);
  const size_t bucket_bytes = (size_t{bucket_mask_} + 1) * sizeof(uint32_t);
  const size_t values_at = round_up(buckets_at + bucket_bytes, kCacheLineBytes);
  buckets_ =
      reinterpret_cast<SharedWord<uint32_t>*>(reinterpret_cast<uintptr_t>(nodes_) + buckets_at);
  if (memory_.data() == nullptr || options_.copies != 0) {
    values_ = reinterpret_cast<uint8_t*>(reinterpret_cast<uintptr_t>(nodes_) + values_at);
    value_distance_ = value_bytes;
    value_area_bytes_ = value_bytes * area_entries(node_count_);
  } else {
    values_ = nodes_ + head_bytes;
    value_distance_ = node_bytes_;
    value_area_bytes_ = 0;
  }
}

ArrayLayout HashTable::values() const {
  const bool is_per_cpu = options_.copies != 0;
  return {.base = values_,
          .value_size = options_.value_size,
          .stride = static_cast<uint32_t>(value_distance_),
          .max_entries = is_per_cpu
                             ? static_cast<uint32_t>(area_entries(node_count_) * options_.copies)
                             : node_count_};
}

void HashTable::make_key(const void* key, Key* made) const {
  uint64_t hash = seed_;
  for (uint32_t i = 0; i < key_words_; ++i) {
    made->words[i] = private_word(key, options_.key_size, i);
    hash = mix_words(hash ^ made->words[i], 0x9e3779b97f4a7c15);
  }
  made->hash = static_cast<uint32_t>(mix_words(hash, 0xe7037ed1a0b428db));
}

// [pairs with fill]
bool HashTable::holds(uint32_t node, const Key& key) const {
  const Node& candidate = at(node);
  const uint32_t version = candidate.version.load_acquire();
  if (candidate.hash.load_acquire() != key.hash || version % 2 != 0) return false;
  const SharedWord<uint64_t>* words = key_words(node);
  for (uint32_t i = 0; i < key_words_; ++i) {
    if (words[i].load_acquire() != key.words[i]) return false;
  }
  return candidate.version.load_relaxed() == version;
}

// [pairs with unlink]
uint32_t HashTable::find_key(const Key& key) const {
  const Stripe& stripe = stripe_of(key.hash);
  for (uint32_t walk = 0; walk < kWalksMax; ++walk) {
    const uint32_t changes = stripe.changes.load_acquire();
    uint32_t node = bucket_of(key.hash).load_acquire();
    for (uint32_t steps = 0; node != kNone && steps < node_count_; ++steps) {
      if (holds(node, key)) return node;
      node = at(node).next.load_acquire();
    }
    if (stripe.changes.load_relaxed() == changes) return kNone;
  }
  return kNone;
}

uint32_t HashTable::find(const void* key) const {
  Key made;
  make_key(key, &made);
  return find_key(made);
}

// With the stripe's lock held nothing moves in this chain.
uint32_t HashTable::find_locked(const Key& key) const {
  uint32_t node = bucket_of(key.hash).load_relaxed();
  for (uint32_t steps = 0; node != kNone; ++steps) {
    SLUICE_ASSERT(steps < node_count_);
    if (holds(node, key)) return node;
    node = at(node).next.load_relaxed();
  }
  return kNone;
}

void HashTable::mark_used(uint32_t node) {
  // Looked at first: a line that is only read stays in every worker's cache.
  if (at(node).mark.load_relaxed() == 0) at(node).mark.store_relaxed(1);
}

uint32_t HashTable::pop_free() {
  std::lock_guard guard(free_lock_);
  const uint32_t node = free_head_;
  if (node != kNone) {
    free_head_ = at(node).next_free;
    used_.store_relaxed(used_.load_relaxed() + 1);
  }
  return node;
}

void HashTable::push_free(uint32_t node) {
  std::lock_guard guard(free_lock_);
  at(node).next_free = free_head_;
  free_head_ = node;
  used_.store_relaxed(used_.load_relaxed() - 1);
}

uint32_t HashTable::take_node() {
  const uint32_t node = pop_free();
  return node == kNone && options_.evicts ? evict() : node;
}

// A node that is in no chain any more and belongs to the caller. No lock is held when this is
// called: the victim may lie in any stripe. Other workers may take nodes away from under the
// clock's hand, therefore the bound.
uint32_t HashTable::evict() {
  const uint32_t tries_max = 2 * kClockStepsMax + node_count_;
  for (uint32_t tries = 0; tries < tries_max; ++tries) {
    uint32_t victim = kNone;
    {
      std::lock_guard guard(free_lock_);
      victim = clock_hand_;
      clock_hand_ = clock_hand_ + 1 < node_count_ ? clock_hand_ + 1 : 0;
    }
    Node& node = at(victim);
    if (node.state.load_acquire() != kUsed) continue;
    if (node.mark.load_relaxed() != 0 && tries < kClockStepsMax) {
      node.mark.store_relaxed(0);
      continue;
    }
    if (try_evict(victim)) return victim;
  }
  return pop_free();
}

bool HashTable::try_evict(uint32_t node) {
  const uint32_t hash = at(node).hash.load_acquire();
  std::lock_guard guard(stripe_of(hash).lock);
  // It may have been erased and used again before we had the lock; if it is used, and by a key of
  // this stripe, then it stays so while we hold it.
  if (at(node).state.load_relaxed() != kUsed || at(node).hash.load_relaxed() != hash) return false;
  unlink(node, hash);
  evictions_.fetch_add_relaxed(1);
  return true;
}

// Each store is a release: who sees one of these words sees that the version is odd, or changed.
void HashTable::fill(uint32_t node, const Key& key, const NewValue& value) {
  Node& target = at(node);
  const uint32_t version = target.version.load_relaxed();
  target.version.store_release(version + 1);
  target.hash.store_release(key.hash);
  for (uint32_t i = 0; i < key_words_; ++i) key_words(node)[i].store_release(key.words[i]);
  put_value(node, value, true);
  target.mark.store_relaxed(0);
  target.version.store_release(version + 2);
}

void HashTable::put_value(uint32_t node, const NewValue& value, bool is_new) {
  const size_t size = options_.value_size;
  if (options_.copies == 0) {
    copy_in(this->value(node), value.bytes, size);
    return;
  }
  for (uint32_t copy = 0; copy < options_.copies; ++copy) {
    if (value.all_copies) {
      copy_in(this->value(node, copy), value.bytes + copy * value_stride(size), size);
    } else if (copy == value.copy) {
      copy_in(this->value(node, copy), value.bytes, size);
    } else if (is_new) {
      clear_value(this->value(node, copy), size);
    }
  }
}

void HashTable::link(uint32_t node, const Key& key) {
  SharedWord<uint32_t>& head = bucket_of(key.hash);
  at(node).next.store_release(head.load_relaxed());
  at(node).state.store_release(kUsed);
  head.store_release(node);
}

// The node's own `next` stays: a reader that stands on it finds its way on. A reader that sees that
// the node is gone sees the first count; one that began after that and stands on the node sees the
// second one before it sees the node used again. [pairs with find_key]
void HashTable::unlink(uint32_t node, uint32_t hash) {
  SharedWord<uint32_t>* place = &bucket_of(hash);
  for (uint32_t steps = 0; place->load_relaxed() != node; ++steps) {
    SLUICE_ASSERT(place->load_relaxed() != kNone && steps < node_count_);
    place = &at(place->load_relaxed()).next;
  }
  Stripe& stripe = stripe_of(hash);
  const uint32_t changes = stripe.changes.load_relaxed();
  stripe.changes.store_release(changes + 1);
  place->store_release(at(node).next.load_relaxed());
  at(node).state.store_release(kFree);
  stripe.changes.store_release(changes + 2);
}

int HashTable::update_present(uint32_t node, const Key& key, const NewValue& value, Stripe& stripe,
                              uint64_t flags) {
  if (flags == BPF_NOEXIST) return -EEXIST;
  if (options_.copies != 0) {
    put_value(node, value, false);
    mark_used(node);
    return 0;
  }
  const uint32_t fresh = stripe.spare;
  fill(fresh, key, value);
  mark_used(fresh);
  link(fresh, key);
  unlink(node, key.hash);
  stripe.spare = node;
  return 0;
}

int HashTable::update(const void* key, const NewValue& value, uint64_t flags) {
  if (flags > BPF_EXIST) return -EINVAL;
  Key made;
  make_key(key, &made);
  Stripe& stripe = stripe_of(made.hash);
  {
    std::lock_guard guard(stripe.lock);
    const uint32_t present = find_locked(made);
    if (present != kNone) return update_present(present, made, value, stripe, flags);
  }
  if (flags == BPF_EXIST) return -ENOENT;
  // Without the lock: evicting takes the lock of the victim's stripe, which may be any.
  const uint32_t node = take_node();
  if (node == kNone) return options_.evicts ? -ENOMEM : -E2BIG;
  std::unique_lock guard(stripe.lock);
  const uint32_t present = find_locked(made);
  if (present != kNone) {  // another worker was faster
    const int status = update_present(present, made, value, stripe, flags);
    guard.unlock();
    push_free(node);
    return status;
  }
  fill(node, made, value);
  link(node, made);
  return 0;
}

int HashTable::erase(const void* key) {
  Key made;
  make_key(key, &made);
  uint32_t node = kNone;
  {
    std::lock_guard guard(stripe_of(made.hash).lock);
    node = find_locked(made);
    if (node == kNone) return -ENOENT;
    unlink(node, made.hash);
  }
  push_free(node);
  return 0;
}

int HashTable::next_key(const void* key, void* next) const {
  const uint32_t found = key == nullptr ? kNone : find(key);
  for (uint32_t node = found == kNone ? 0 : found + 1; node < node_count_; ++node) {
    const uint32_t version = at(node).version.load_acquire();
    if (!is_used(node) || version % 2 != 0) continue;
    for (uint32_t i = 0; i < key_words_; ++i) {
      const uint64_t word = key_words(node)[i].load_acquire();
      std::memcpy(static_cast<uint8_t*>(next) + i * size_t{8}, &word,
                  std::min<size_t>(8, options_.key_size - i * size_t{8}));
    }
    if (is_used(node) && at(node).version.load_relaxed() == version) return 0;
  }
  return -ENOENT;
}

}  // namespace sluice
