#include "xdp/helper_arguments.h"

#include <linux/bpf.h>

namespace sluice {
namespace {

using enum ArgumentKind;

struct Row {
  uint32_t id;
  std::array<ArgumentKind, 5> kinds;
};

// Not here: what hands out pointers that are no value of a map (ringbuf_reserve), or takes text of
// which only the verifier can know that it ends (snprintf, strncmp).
constexpr Row kRows[] = {
    {BPF_FUNC_map_lookup_elem, {map, key}},
    {BPF_FUNC_map_update_elem, {map, key, value, any}},
    {BPF_FUNC_map_delete_elem, {map, key}},
    {BPF_FUNC_ktime_get_ns, {}},
    {BPF_FUNC_trace_printk, {bytes, any, any, any, any}},
    {BPF_FUNC_get_prandom_u32, {}},
    {BPF_FUNC_get_smp_processor_id, {}},
    {BPF_FUNC_redirect, {any, any}},
    {BPF_FUNC_perf_event_output, {context, map, any, bytes, any}},
    {BPF_FUNC_csum_diff, {bytes_or_null, any, bytes_or_null, any, any}},
    {BPF_FUNC_xdp_adjust_head, {context, any}},
    {BPF_FUNC_redirect_map, {map, any, any}},
    {BPF_FUNC_xdp_adjust_meta, {context, any}},
    {BPF_FUNC_xdp_adjust_tail, {context, any}},
    {BPF_FUNC_map_push_elem, {map, value, any}},
    {BPF_FUNC_map_pop_elem, {map, value_out}},
    {BPF_FUNC_map_peek_elem, {map, value_out}},
    {BPF_FUNC_ktime_get_boot_ns, {}},
    {BPF_FUNC_ringbuf_output, {map, bytes, any, any}},
    {BPF_FUNC_ringbuf_query, {map, any}},
    {BPF_FUNC_check_mtu, {context, any, word_out, any, any}},
    {BPF_FUNC_xdp_get_buff_len, {context}},
    {BPF_FUNC_xdp_load_bytes, {context, any, bytes_out, any}},
    {BPF_FUNC_xdp_store_bytes, {context, any, bytes, any}},
    {BPF_FUNC_map_lookup_percpu_elem, {map, key, any}},
};

}  // namespace

const std::array<ArgumentKind, 5>* argument_kinds(uint32_t helper_id) {
  for (const Row& row : kRows)
    if (row.id == helper_id) return &row.kinds;
  return nullptr;
}

}  // namespace sluice
