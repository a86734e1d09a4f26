// Lets each source address send so many packets a second, and drops the rest.
//
// A bucket a source, which fills with time; the least recently seen source gives way to a new one.
// The limit is a global, so it can be changed while packets flow (its map is named after the
// section, .data; the first 8 bytes are packets a second, the next 8 the burst):
//
//   sluice xdp map dump vm0 .data
//   sluice xdp map dump vm0 buckets
#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/ip.h>

#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

struct {
  __u64 packets_a_second;
  __u64 burst;
} limit SEC(".data") = {.packets_a_second = 1000, .burst = 100};

struct bucket {
  __u64 last_ns;
  __u64 tokens_ns;  // time saved up; a packet costs a second divided by the limit
  __u64 passed;
  __u64 dropped;
};

struct {
  __uint(type, BPF_MAP_TYPE_LRU_HASH);
  __uint(max_entries, 4096);
  __type(key, __u32);
  __type(value, struct bucket);
} buckets SEC(".maps");

SEC("xdp")
int rate_limit(struct xdp_md *ctx) {
  void *data = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;
  struct ethhdr *ethernet = data;
  struct iphdr *ip = (void *)(ethernet + 1);
  if ((void *)(ip + 1) > end || ethernet->h_proto != bpf_htons(ETH_P_IP)) return XDP_PASS;

  __u64 rate = limit.packets_a_second, burst = limit.burst;
  if (rate == 0) return XDP_DROP;
  __u64 cost_ns = 1000000000 / rate, now_ns = bpf_ktime_get_ns();
  __u32 source = ip->saddr;
  struct bucket *bucket = bpf_map_lookup_elem(&buckets, &source);
  if (!bucket) {
    struct bucket fresh = {.last_ns = now_ns, .tokens_ns = burst * cost_ns - cost_ns, .passed = 1};
    bpf_map_update_elem(&buckets, &source, &fresh, BPF_ANY);
    return XDP_PASS;
  }
  __u64 tokens_ns = bucket->tokens_ns + (now_ns - bucket->last_ns);
  if (tokens_ns > burst * cost_ns) tokens_ns = burst * cost_ns;
  bucket->last_ns = now_ns;
  if (tokens_ns < cost_ns) {
    bucket->tokens_ns = tokens_ns;
    bucket->dropped += 1;
    return XDP_DROP;
  }
  bucket->tokens_ns = tokens_ns - cost_ns;
  bucket->passed += 1;
  return XDP_PASS;
}

char _license[] SEC("license") = "GPL";
