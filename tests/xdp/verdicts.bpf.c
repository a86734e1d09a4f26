// Returns what the packet's first byte behind its Ethernet header says, so that a sender chooses.
#include <linux/bpf.h>
#include <linux/if_ether.h>

#include <bpf/bpf_helpers.h>

// Port numbers by the packet's second byte.
struct {
  __uint(type, BPF_MAP_TYPE_DEVMAP);
  __uint(max_entries, 8);
  __type(key, __u32);
  __type(value, __u32);
} ports SEC(".maps");

SEC("xdp")
int verdict_of_packet(struct xdp_md *ctx) {
  unsigned char *data = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;
  if (data + ETH_HLEN + 2 > end) return XDP_PASS;
  if (data[12] != 0x88 || data[13] != 0xb5) return XDP_PASS;  // not one of the test's frames
  if (data[ETH_HLEN] == XDP_REDIRECT)
    return bpf_redirect_map(&ports, data[ETH_HLEN + 1], XDP_ABORTED);
  return data[ETH_HLEN];
}

char _license[] SEC("license") = "GPL";
