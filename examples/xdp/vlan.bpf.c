// Puts a VLAN tag into every frame (vlan_push), or takes it out again (vlan_pop).
//
// Attach vlan_push to the VM's port and vlan_pop to the port at the other end of the cable: the
// guest knows nothing of its VLAN. Frames of another VLAN, or of none, do not reach it.
//
// The number is in the first 2 bytes of the map .data:
//
//   sluice xdp attach vm0,object=vlan.bpf.o,program=vlan_push
//   sluice xdp attach t0,object=vlan.bpf.o,program=vlan_pop
#include <linux/bpf.h>
#include <linux/if_ether.h>

#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

__u16 vlan_id SEC(".data") = 10;

struct tag {
  __be16 control;
  __be16 protocol;
};

SEC("xdp")
int vlan_push(struct xdp_md *ctx) {
  struct ethhdr addresses;
  void *data = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;
  if (data + sizeof addresses > end) return XDP_DROP;
  __builtin_memcpy(&addresses, data, sizeof addresses);
  if (bpf_xdp_adjust_head(ctx, -(int)sizeof(struct tag))) return XDP_ABORTED;
  data = (void *)(long)ctx->data;
  end = (void *)(long)ctx->data_end;
  if (data + sizeof addresses + sizeof(struct tag) > end) return XDP_ABORTED;
  struct ethhdr *ethernet = data;
  struct tag *tag = data + sizeof addresses;
  tag->control = bpf_htons(vlan_id & 0xfff);
  tag->protocol = addresses.h_proto;
  addresses.h_proto = bpf_htons(ETH_P_8021Q);
  __builtin_memcpy(ethernet, &addresses, sizeof addresses);
  return XDP_PASS;
}

SEC("xdp")
int vlan_pop(struct xdp_md *ctx) {
  struct ethhdr addresses;
  void *data = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;
  struct tag *tag = data + sizeof addresses;
  if ((void *)(tag + 1) > end) return XDP_DROP;
  __builtin_memcpy(&addresses, data, sizeof addresses);
  if (addresses.h_proto != bpf_htons(ETH_P_8021Q)) return XDP_DROP;
  if ((bpf_ntohs(tag->control) & 0xfff) != (vlan_id & 0xfff)) return XDP_DROP;
  addresses.h_proto = tag->protocol;
  if (bpf_xdp_adjust_head(ctx, sizeof(struct tag))) return XDP_ABORTED;
  data = (void *)(long)ctx->data;
  end = (void *)(long)ctx->data_end;
  if (data + sizeof addresses > end) return XDP_ABORTED;
  __builtin_memcpy(data, &addresses, sizeof addresses);
  return XDP_PASS;
}

char _license[] SEC("license") = "GPL";
