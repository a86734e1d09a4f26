// Three XDP programs in C, for both sides of a comparison: native functions of ours, and, by
// clang -target bpf, the instructions in xdp_cost_code.h.
//
//     clang-16 -target bpf -O2 -mcpu=v3 -x c -c xdp_cost_programs.h -o programs.o
//     llvm-objdump-16 -d -r programs.o
//
// Whoever includes it defines how a map is looked up: COST_COUNTER(index) in an array of counters,
// COST_ENTRY(key) in a hash.
#pragma once

#include <linux/bpf.h>

struct cost_counter {
  __u64 frames;
  __u64 bytes;
};

#ifdef __bpf__
struct {
  int (*type)[BPF_MAP_TYPE_ARRAY];
  __u32* key;
  struct cost_counter* value;
  int (*max_entries)[8];
} counters __attribute__((section(".maps"), used));
struct {
  int (*type)[BPF_MAP_TYPE_HASH];
  __u32* key;
  __u64* value;
  int (*max_entries)[1024];
} entries __attribute__((section(".maps"), used));
static void* (*map_lookup)(void*, const void*) = (void*)BPF_FUNC_map_lookup_elem;
#define COST_COUNTER(index) ((struct cost_counter*)map_lookup(&counters, index))
#define COST_ENTRY(key) ((__u64*)map_lookup(&entries, key))
#define COST_SECTION __attribute__((section("xdp"), used))
#define COST_CONTEXT struct xdp_md* context
#define COST_POINTER(number) ((unsigned char*)(long)(number))
#define COST_LOAD16(at) (*(const __u16*)(at))
#define COST_LOAD32(at) (*(const __u32*)(at))
#else
#define COST_SECTION
#define COST_CONTEXT const xdp_md* context
#define COST_POINTER(number) (reinterpret_cast<unsigned char*>(static_cast<__u64>(number)))
// At any address; one instruction where the machine has it.
template <typename T>
inline T cost_load(const unsigned char* at) {
  T value;
  __builtin_memcpy(&value, at, sizeof value);
  return value;
}
#define COST_LOAD16(at) cost_load<__u16>(at)
#define COST_LOAD32(at) cost_load<__u32>(at)
#endif

#define COST_IPV4 0x0008  // as it lies

COST_SECTION int cost_drop(COST_CONTEXT) {
  (void)context;
  return XDP_DROP;
}

// Which protocol: 0 not IPv4, 1 other, 2 UDP, 3 TCP, 4 broken. The counter is the frame's.
static inline __attribute__((always_inline)) __u32 cost_class(const unsigned char* data,
                                                              const unsigned char* end) {
  if (data + 14 > end) return 4;
  if (COST_LOAD16(data + 12) != COST_IPV4) return 0;
  if (data + 34 > end) return 4;
  const __u32 header_bytes = (data[14] & 15u) * 4;
  if (data[14] >> 4 != 4 || header_bytes < 20) return 4;
  const unsigned char* transport = data + 14 + header_bytes;
  if (transport + 8 > end) return 4;
  if (data[23] == 17) return transport[4] == 0 && transport[5] < 8 ? 4 : 2;
  return data[23] == 6 ? 3 : 1;
}

COST_SECTION int cost_count(COST_CONTEXT) {
  const unsigned char* data = COST_POINTER(context->data);
  const unsigned char* end = COST_POINTER(context->data_end);
  const __u32 index = cost_class(data, end);
  struct cost_counter* counter = COST_COUNTER(&index);
  if (!counter) return XDP_ABORTED;
  counter->frames += 1;
  counter->bytes += (__u64)(end - data);
  return XDP_DROP;
}

// Drops what comes from an address that the hash has.
COST_SECTION int cost_lookup(COST_CONTEXT) {
  const unsigned char* data = COST_POINTER(context->data);
  const unsigned char* end = COST_POINTER(context->data_end);
  if (data + 34 > end || COST_LOAD16(data + 12) != COST_IPV4) return XDP_PASS;
  const __u32 source = COST_LOAD32(data + 26);
  __u64* entry = COST_ENTRY(&source);
  if (!entry) return XDP_PASS;
  *entry += 1;
  return XDP_DROP;
}
