// Drops what comes from sources that the operator has listed, by prefix.
//
// `blocked` is a longest-prefix map: an address is dropped if the longest entry that covers it says
// so (1), and passes if that says 0 or if none covers it. It can be changed while packets flow:
//
//   sluice xdp map update vm0 blocked key 10.0.0.0/24 value 1
//   sluice xdp map update vm0 blocked key 10.0.0.7/32 value 0
//   sluice xdp map dump vm0 counters
#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/ip.h>

#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

struct prefix {
  __u32 bits;
  __u32 address;  // as in the packet
};

struct {
  __uint(type, BPF_MAP_TYPE_LPM_TRIE);
  __uint(map_flags, BPF_F_NO_PREALLOC);
  __uint(max_entries, 1024);
  __type(key, struct prefix);
  __type(value, __u32);
} blocked SEC(".maps");

// Packets that passed, and packets that were dropped.
struct {
  __uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
  __uint(max_entries, 2);
  __type(key, __u32);
  __type(value, __u64);
} counters SEC(".maps");

static __always_inline int count(__u32 which, int verdict) {
  __u64 *counter = bpf_map_lookup_elem(&counters, &which);
  if (counter) *counter += 1;
  return verdict;
}

SEC("xdp")
int drop_sources(struct xdp_md *ctx) {
  void *data = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;
  struct ethhdr *ethernet = data;
  struct iphdr *ip = (void *)(ethernet + 1);
  if ((void *)(ip + 1) > end || ethernet->h_proto != bpf_htons(ETH_P_IP))
    return count(0, XDP_PASS);
  struct prefix source = {.bits = 32, .address = ip->saddr};
  __u32 *is_blocked = bpf_map_lookup_elem(&blocked, &source);
  return is_blocked && *is_blocked ? count(1, XDP_DROP) : count(0, XDP_PASS);
}

char _license[] SEC("license") = "GPL";
