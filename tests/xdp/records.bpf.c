// Writes the length of every packet into a ring buffer, and into a perf event array.
#include <linux/bpf.h>

#include <bpf/bpf_helpers.h>

struct {
  __uint(type, BPF_MAP_TYPE_RINGBUF);
  __uint(max_entries, 4096);
} lengths SEC(".maps");

struct {
  __uint(type, BPF_MAP_TYPE_PERF_EVENT_ARRAY);
  __uint(key_size, 4);
  __uint(value_size, 4);
} events SEC(".maps");

SEC("xdp")
int note_length(struct xdp_md *ctx) {
  __u32 length = ctx->data_end - ctx->data;
  bpf_ringbuf_output(&lengths, &length, sizeof length, 0);
  bpf_perf_event_output(ctx, &events, BPF_F_CURRENT_CPU, &length, sizeof length);
  return XDP_PASS;
}

char _license[] SEC("license") = "GPL";
