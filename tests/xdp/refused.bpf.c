// Programs that must be refused, each for one reason: by the kernel's verifier, or by us.
#include <linux/bpf.h>
#include <linux/if_ether.h>

#include <bpf/bpf_helpers.h>

struct {
  __uint(type, BPF_MAP_TYPE_HASH);
  __uint(max_entries, 4);
  __type(key, __u32);
  __type(value, __u64);
} numbers SEC(".maps");

// The packet's bytes without a look at where it ends.
SEC("xdp")
int unchecked_packet(struct xdp_md *ctx) {
  unsigned char *data = (void *)(long)ctx->data;
  return data[60] == 1 ? XDP_DROP : XDP_PASS;
}

// A value without a look whether there is one.
SEC("xdp")
int unchecked_value(struct xdp_md *ctx) {
  __u32 key = 0;
  __u64 *value = bpf_map_lookup_elem(&numbers, &key);
  return *value ? XDP_DROP : XDP_PASS;
}

SEC("xdp")
int endless_loop(struct xdp_md *ctx) {
  for (volatile int i = 1; i;) {
  }
  return XDP_PASS;
}

// Fine for the kernel, and not offered by us: it would be a system call for every packet.
SEC("xdp")
int looks_up_routes(struct xdp_md *ctx) {
  struct bpf_fib_lookup route = {.family = 2, .ifindex = ctx->ingress_ifindex};
  return bpf_fib_lookup(ctx, &route, sizeof route, 0) == 0 ? XDP_PASS : XDP_DROP;
}

SEC("xdp.frags")
int wants_fragments(struct xdp_md *ctx) {
  return XDP_PASS;
}

SEC("xdp/devmap")
int second_program(struct xdp_md *ctx) {
  return XDP_PASS;
}

char _license[] SEC("license") = "GPL";
