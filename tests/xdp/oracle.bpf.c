// Programs for tests/test_xdp_differential.py: what the packet says decides what they do with maps,
// helpers and functions, and each answer goes into the number that they return.
// The second needs the types of the first.
// clang-format off
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
// clang-format on

#define MAP(name, map_type, key_type, value_type, entries, flags) \
  struct {                                                        \
    __uint(type, map_type);                                       \
    __type(key, key_type);                                        \
    __type(value, value_type);                                    \
    __uint(max_entries, entries);                                 \
    __uint(map_flags, flags);                                     \
  } name SEC(".maps")
#define QUEUE(name, map_type, value_type, entries) \
  struct {                                         \
    __uint(type, map_type);                        \
    __uint(key_size, 0);                           \
    __type(value, value_type);                     \
    __uint(max_entries, entries);                  \
  } name SEC(".maps")

struct prefix {
  __u32 bits;
  __u8 address[4];
};
struct wide {
  __u64 number;
  __u8 rest[16];  // no padding: what lies there would be whatever the stack had
};

MAP(hash, BPF_MAP_TYPE_HASH, __u32, struct wide, 24, 0);
MAP(lazy_hash, BPF_MAP_TYPE_HASH, __u16, __u64, 24, BPF_F_NO_PREALLOC);
MAP(percpu_hash, BPF_MAP_TYPE_PERCPU_HASH, __u32, __u32, 24, 0);
MAP(lru, BPF_MAP_TYPE_LRU_HASH, __u32, __u64, 1024, 0);
MAP(array, BPF_MAP_TYPE_ARRAY, __u32, struct wide, 7, 0);
MAP(percpu_array, BPF_MAP_TYPE_PERCPU_ARRAY, __u32, __u64, 5, 0);
MAP(trie, BPF_MAP_TYPE_LPM_TRIE, struct prefix, __u64, 64, BPF_F_NO_PREALLOC);
MAP(programs, BPF_MAP_TYPE_PROG_ARRAY, __u32, __u32, 2, 0);
QUEUE(queue, BPF_MAP_TYPE_QUEUE, __u64, 5);
QUEUE(stack, BPF_MAP_TYPE_STACK, __u64, 5);
QUEUE(bloom, BPF_MAP_TYPE_BLOOM_FILTER, __u32, 100);

__u64 total = 7;
__u32 bits;
const volatile char name[] = "sluice";

// A byte of the packet, 0 behind its end.
static __always_inline __u32 byte_at(struct xdp_md* context, __u32 at) {
  unsigned char* byte = (unsigned char*)(long)context->data + at;
  return byte + 1 > (unsigned char*)(long)context->data_end ? 0 : *byte;
}
static __always_inline __u32 mixed(__u32 sum, __u64 answer) { return sum * 31 + (__u32)answer; }

// Flags that are right, and some that are not.
static __always_inline __u64 flags_of(__u32 byte) { return byte % 8 == 7 ? 1ULL << 40 : byte % 4; }

#define EXERCISE(map, key, value, choice, sum)                                             \
  do {                                                                                     \
    switch ((choice) % 4) {                                                                \
      case 0:                                                                              \
        sum = mixed(sum, bpf_map_update_elem(&map, &key, &value, flags_of((choice) / 4))); \
        break;                                                                             \
      case 1:                                                                              \
        sum = mixed(sum, bpf_map_delete_elem(&map, &key));                                 \
        break;                                                                             \
      default: {                                                                           \
        __u32* found = bpf_map_lookup_elem(&map, &key);                                    \
        sum = mixed(sum, found ? *found + 1ULL : 0);                                       \
        if (found) *found += 3;                                                            \
      }                                                                                    \
    }                                                                                      \
  } while (0)

SEC("xdp") int oracle_hashes(struct xdp_md* context) {
  const __u32 choice = byte_at(context, 23) + byte_at(context, 35);
  __u32 key = byte_at(context, 5) * 7 + byte_at(context, 11), sum = 0;
  __u16 short_key = key;
  struct wide value = {.number = byte_at(context, 37) * 0x100000001ULL, .rest = {1, 2}};
  __u64 number = value.number;
  EXERCISE(hash, key, value, choice, sum);
  EXERCISE(lazy_hash, short_key, number, choice + 1, sum);
  EXERCISE(percpu_hash, key, number, choice + 2, sum);
  EXERCISE(lru, key, number, choice / 2, sum);
  return sum;
}

SEC("xdp") int oracle_arrays(struct xdp_md* context) {
  const __u32 choice = byte_at(context, 23) + byte_at(context, 35);
  __u32 key = byte_at(context, 5) + byte_at(context, 11) % 4, sum = 0;
  struct wide value = {.number = choice, .rest = {3}};
  __u64 number = byte_at(context, 37);
  EXERCISE(array, key, value, choice, sum);
  EXERCISE(percpu_array, key, number, choice + 1, sum);
  total += sum;
  return sum;
}

SEC("xdp") int oracle_prefixes(struct xdp_md* context) {
  struct prefix key = {.bits = byte_at(context, 11) * 7 % 34,
                       .address = {10, byte_at(context, 5), byte_at(context, 37), 0}};
  const __u32 choice = byte_at(context, 23) + byte_at(context, 35);
  __u64 value = choice * 3;
  __u32 sum = 0;
  EXERCISE(trie, key, value, choice, sum);
  return sum;
}

#define EXERCISE_QUEUE(map, value, choice, sum)                                  \
  do {                                                                           \
    __u64 out = 5;                                                               \
    if ((choice) % 2 == 0)                                                       \
      sum = mixed(sum, bpf_map_push_elem(&map, &value, flags_of((choice) / 2))); \
    else if ((choice) % 4 == 1)                                                  \
      sum = mixed(sum, bpf_map_pop_elem(&map, &out));                            \
    else                                                                         \
      sum = mixed(sum, bpf_map_peek_elem(&map, &out));                           \
    sum = mixed(sum, out);                                                       \
  } while (0)

SEC("xdp") int oracle_queues(struct xdp_md* context) {
  const __u32 choice = byte_at(context, 23) + byte_at(context, 35);
  __u64 value = byte_at(context, 5) * 0x300000007ULL;
  __u32 sum = 0;
  EXERCISE_QUEUE(queue, value, choice, sum);
  EXERCISE_QUEUE(stack, value, choice + byte_at(context, 37), sum);
  return sum;
}

struct walk {
  struct xdp_md* context;
  __u32 sum;
  __u32 stop;
};
static long inner_step(__u32 index, void* argument) {
  struct walk* walk = argument;
  walk->sum += index;
  return walk->sum % 16 == 3;
}
static long outer_step(__u32 index, void* argument) {
  struct walk* walk = argument;
  walk->sum = mixed(walk->sum, byte_at(walk->context, index & 1023));
  if (index % 8 == 1) walk->sum = mixed(walk->sum, bpf_loop(index, inner_step, walk, 0));
  return index >= walk->stop;
}

SEC("xdp") int oracle_loops(struct xdp_md* context) {
  struct walk walk = {.context = context, .stop = byte_at(context, 11) * 40};
  __u32 sum = bpf_loop(byte_at(context, 5) * 60, outer_step, &walk, 0);
  sum = mixed(sum, bpf_loop(3, outer_step, &walk, byte_at(context, 35) % 4));
  sum = mixed(sum, bpf_loop(byte_at(context, 37) % 8 == 0 ? 1 << 24 : 1, inner_step, &walk, 0));
  return mixed(sum, walk.sum);
}

SEC("xdp") int oracle_tail_calls(struct xdp_md* context) {
  __u32 key = 1;
  __u64* count = bpf_map_lookup_elem(&percpu_array, &key);
  if (count) *count += byte_at(context, 5);
  bpf_tail_call(context, &programs, byte_at(context, 11) % 4);
  return count ? *count : 0;
}

SEC("xdp") int oracle_texts(struct xdp_md* context) {
  char text[32] = {}, word[8] = {'s', 'l', 'u'};
  __u64 values[] = {byte_at(context, 5), -(__s64)byte_at(context, 11), (long)name};
  word[2] = byte_at(context, 37) % 2 ? 'u' : byte_at(context, 35);
  __u32 sum = bpf_snprintf(text, sizeof text, "%d|%04llx|%s", values, sizeof values);
  for (int i = 0; i < 32; ++i) sum = mixed(sum, text[i]);
  sum = mixed(sum, bpf_strncmp(word, 3, (const char*)name));
  return mixed(sum, bpf_strncmp(word, 8, (const char*)name));
}

SEC("xdp") int oracle_atomics(struct xdp_md* context) {
  const __u64 number = byte_at(context, 5) * 0x123456789ULL + byte_at(context, 37);
  __u32 sum = mixed(0, __sync_fetch_and_add(&total, number));
  sum = mixed(sum, __sync_fetch_and_or(&bits, (__u32)number));
  sum = mixed(sum, __sync_fetch_and_xor(&total, number));
  sum = mixed(sum, __sync_fetch_and_and(&bits, ~(__u32)number));
  sum = mixed(sum, __sync_val_compare_and_swap(&bits, byte_at(context, 11), 77));
  sum = mixed(sum, __sync_lock_test_and_set(&bits, (__u32)number));
  __sync_fetch_and_add(&bits, 5);
  return sum;
}

// An outer IPv4 header, and off with it again, or not.
SEC("xdp") int oracle_headers(struct xdp_md* context) {
  __u8 ether[14], outer[20] = {0x45};
  __u32 sum = mixed(0, bpf_xdp_load_bytes(context, 0, ether, sizeof ether));
  const int room = (int)byte_at(context, 5) * 44;
  outer[3] = byte_at(context, 37);
  sum = mixed(sum, bpf_xdp_adjust_head(context, -room));
  sum = mixed(sum, bpf_xdp_store_bytes(context, 0, ether, sizeof ether));
  sum = mixed(sum, bpf_xdp_store_bytes(context, byte_at(context, 11) * 9, outer, sizeof outer));
  sum = mixed(sum, bpf_csum_diff(0, 0, (__be32*)outer, sizeof outer, sum));
  sum = mixed(sum, bpf_xdp_adjust_tail(context, (int)byte_at(context, 35) - 128));
  return mixed(sum, bpf_xdp_get_buff_len(context));
}

char _license[] SEC("license") = "GPL";
