// The helpers that know the packet, the time, or this worker. Answers and error numbers are the
// kernel's: programs branch on them.
#include <linux/bpf.h>
#include <time.h>

#include <cerrno>
#include <cstring>
#include <optional>
#include <random>

#include "base/clock.h"
#include "base/limits.h"
#include "xdp/helper_function.h"
#include "xdp/helpers_text.h"
#include "xdp/run_state.h"

namespace sluice {
namespace {

// No program may make a packet shorter than its Ethernet header.
constexpr int64_t kPacketBytesLeft = kPacketBytesMin;
// The kernel keeps its struct xdp_frame at the beginning of the headroom. We have nothing there,
// but what fits here must fit there too.
constexpr int64_t kReservedBytes = 40;
// Metadata is counted in words, and their number in one byte of the kernel's skb_shared_info.
// (Kernels before 6.8 stop at 32.)
constexpr int64_t kMetaBytesMax = 252;
// Offsets and lengths beyond are no offsets and lengths in a packet.
constexpr uint32_t kPacketOffsetMax = 0xffff;

uint64_t error(int number) { return static_cast<uint64_t>(-int64_t{number}); }

xdp_md* context_at(uint64_t r1) { return reinterpret_cast<xdp_md*>(r1); }

uint8_t* pointer(uint32_t address) { return reinterpret_cast<uint8_t*>(uint64_t{address}); }

// Addresses as signed numbers, so that no offset of a program wraps them.
int64_t chunk_begin() {
  return static_cast<int64_t>(reinterpret_cast<uint64_t>(run_state.chunk)) + kReservedBytes;
}
int64_t chunk_end() {
  return static_cast<int64_t>(reinterpret_cast<uint64_t>(run_state.chunk_end));
}

uint32_t packet_bytes(const xdp_md& context) { return context.data_end - context.data; }

uint64_t adjust_head(uint64_t r1, uint64_t r2, uint64_t, uint64_t, uint64_t) {
  xdp_md& context = *context_at(r1);
  const auto offset = static_cast<int32_t>(r2);
  const uint32_t meta_bytes = context.data - context.data_meta;
  const int64_t data = int64_t{context.data} + offset;
  if (data < chunk_begin() + meta_bytes || data > int64_t{context.data_end} - kPacketBytesLeft)
    return error(EINVAL);
  if (meta_bytes > 0)
    std::memmove(pointer(static_cast<uint32_t>(data - meta_bytes)), pointer(context.data_meta),
                 meta_bytes);
  context.data = static_cast<uint32_t>(data);
  context.data_meta = static_cast<uint32_t>(data - meta_bytes);
  return 0;
}

uint64_t adjust_tail(uint64_t r1, uint64_t r2, uint64_t, uint64_t, uint64_t) {
  xdp_md& context = *context_at(r1);
  const auto offset = static_cast<int32_t>(r2);
  const int64_t end = int64_t{context.data_end} + offset;
  if (end > chunk_end() || end < int64_t{context.data} + kPacketBytesLeft) return error(EINVAL);
  // Behind the packet lies an earlier one.
  if (offset > 0) std::memset(pointer(context.data_end), 0, static_cast<size_t>(offset));
  context.data_end = static_cast<uint32_t>(end);
  return 0;
}

uint64_t adjust_meta(uint64_t r1, uint64_t r2, uint64_t, uint64_t, uint64_t) {
  xdp_md& context = *context_at(r1);
  const int64_t meta = int64_t{context.data_meta} + static_cast<int32_t>(r2);
  if (meta < chunk_begin() || meta > int64_t{context.data}) return error(EINVAL);
  const int64_t bytes = int64_t{context.data} - meta;
  if (bytes % 4 != 0 || bytes > kMetaBytesMax) return error(EACCES);
  context.data_meta = static_cast<uint32_t>(meta);
  return 0;
}

uint64_t get_buff_len(uint64_t r1, uint64_t, uint64_t, uint64_t, uint64_t) {
  return packet_bytes(*context_at(r1));
}

// What both directions check; 0 if the bytes lie in the packet.
uint64_t range_error(const xdp_md& context, uint32_t offset, uint32_t bytes) {
  if (offset > kPacketOffsetMax || bytes > kPacketOffsetMax) return error(EFAULT);
  return offset + bytes > packet_bytes(context) ? error(EINVAL) : 0;
}

// The program's buffer may lie in the packet itself.
uint64_t load_bytes(uint64_t r1, uint64_t r2, uint64_t r3, uint64_t r4, uint64_t) {
  const xdp_md& context = *context_at(r1);
  const auto offset = static_cast<uint32_t>(r2), bytes = static_cast<uint32_t>(r4);
  if (const uint64_t fault = range_error(context, offset, bytes)) return fault;
  std::memmove(reinterpret_cast<void*>(r3), pointer(context.data + offset), bytes);
  return 0;
}

uint64_t store_bytes(uint64_t r1, uint64_t r2, uint64_t r3, uint64_t r4, uint64_t) {
  const xdp_md& context = *context_at(r1);
  const auto offset = static_cast<uint32_t>(r2), bytes = static_cast<uint32_t>(r4);
  if (const uint64_t fault = range_error(context, offset, bytes)) return fault;
  std::memmove(pointer(context.data + offset), reinterpret_cast<const void*>(r3), bytes);
  return 0;
}

// Ones' complement sum in memory's byte order, folded to 32 bits: zero only if everything is.
uint32_t checksum_of(uint64_t address, uint32_t bytes, uint32_t seed) {
  const auto* at = reinterpret_cast<const uint8_t*>(address);
  uint64_t sum = seed;  // at most 2^32 words of 2^32: no overflow
  for (uint32_t done = 0; done < bytes; done += 4) {
    uint32_t word = 0;
    std::memcpy(&word, at + done, bytes - done < 4 ? bytes - done : 4);
    sum += word;
  }
  sum = (sum & 0xffffffff) + (sum >> 32);
  return static_cast<uint32_t>((sum & 0xffffffff) + (sum >> 32));
}

uint32_t added_with_carry(uint32_t a, uint32_t b) {
  const uint32_t sum = a + b;
  return sum + (sum < a ? 1 : 0);
}

// What `from` contributed to a sum is taken out of it, what `to` does is put in.
uint64_t csum_diff(uint64_t r1, uint64_t r2, uint64_t r3, uint64_t r4, uint64_t r5) {
  const auto from_bytes = static_cast<uint32_t>(r2), to_bytes = static_cast<uint32_t>(r4);
  auto sum = static_cast<uint32_t>(r5);
  if (from_bytes > 0 && to_bytes > 0)
    sum = added_with_carry(checksum_of(r3, to_bytes, sum), ~checksum_of(r1, from_bytes, 0));
  else if (to_bytes > 0)
    sum = checksum_of(r3, to_bytes, sum);
  else if (from_bytes > 0)
    sum = ~checksum_of(r1, from_bytes, ~sum);
  const uint32_t swapped = sum >> 16 | sum << 16;
  return (sum + swapped) >> 16;  // both halves and their carry
}

// The last call counts, unless its flags are wrong.
uint64_t redirect(uint64_t r1, uint64_t r2, uint64_t, uint64_t, uint64_t) {
  if (r2 != 0) return XDP_ABORTED;
  run_state.redirect = {.kind = RedirectTarget::Kind::port, .port = static_cast<uint32_t>(r1)};
  return XDP_REDIRECT;
}

// r3: the length of the packet without link header if not zero, and where the MTU goes.
uint64_t check_mtu(uint64_t r1, uint64_t r2, uint64_t r3, uint64_t r4, uint64_t r5) {
  const xdp_md& context = *context_at(r1);
  if (r5 != 0) return error(EINVAL);
  const uint32_t number =
      static_cast<uint32_t>(r2) == 0 ? context.ingress_ifindex : static_cast<uint32_t>(r2);
  const std::span<const uint32_t> mtus = run_state.port_mtus;
  if (number >= mtus.size() || mtus[number] == 0) return error(ENODEV);
  uint32_t bytes = 0;
  std::memcpy(&bytes, reinterpret_cast<const void*>(r3), sizeof bytes);
  // 32 bits that wrap, as the kernel's.
  uint32_t frame_bytes = bytes != 0 ? bytes + kPacketBytesMin : packet_bytes(context);
  frame_bytes += static_cast<uint32_t>(r4);
  const uint32_t mtu = mtus[number];
  std::memcpy(reinterpret_cast<void*>(r3), &mtu, sizeof mtu);
  return static_cast<int32_t>(frame_bytes) > static_cast<int64_t>(mtu + kPacketBytesMin)
             ? uint64_t{BPF_MTU_CHK_RET_FRAG_NEEDED}
             : uint64_t{BPF_MTU_CHK_RET_SUCCESS};
}

uint64_t ktime_get_ns(uint64_t, uint64_t, uint64_t, uint64_t, uint64_t) { return monotonic_ns(); }

uint64_t ktime_get_boot_ns(uint64_t, uint64_t, uint64_t, uint64_t, uint64_t) {
  timespec now{};
  clock_gettime(CLOCK_BOOTTIME, &now);
  return static_cast<uint64_t>(now.tv_sec) * 1'000'000'000u + static_cast<uint64_t>(now.tv_nsec);
}

// Each worker has its own sequence. [xorshift64*]
uint64_t get_prandom_u32(uint64_t, uint64_t, uint64_t, uint64_t, uint64_t) {
  thread_local uint64_t state = 0;
  while (state == 0) [[unlikely]] {
      std::random_device source;
      state = uint64_t{source()} << 32 | source();
    }
  state ^= state >> 12;
  state ^= state << 25;
  state ^= state >> 27;
  return state * 0x2545f4914f6cdd1du >> 32;
}

uint64_t get_smp_processor_id(uint64_t, uint64_t, uint64_t, uint64_t, uint64_t) {
  return run_state.worker_index;
}

constexpr HelperEntry kPacketHelpers[] = {
    {BPF_FUNC_ktime_get_ns, "ktime_get_ns", ktime_get_ns},
    {BPF_FUNC_trace_printk, "trace_printk", helper_trace_printk},
    {BPF_FUNC_get_prandom_u32, "get_prandom_u32", get_prandom_u32},
    {BPF_FUNC_get_smp_processor_id, "get_smp_processor_id", get_smp_processor_id},
    {BPF_FUNC_redirect, "redirect", redirect},
    {BPF_FUNC_csum_diff, "csum_diff", csum_diff},
    {BPF_FUNC_xdp_adjust_head, "xdp_adjust_head", adjust_head},
    {BPF_FUNC_xdp_adjust_meta, "xdp_adjust_meta", adjust_meta},
    {BPF_FUNC_xdp_adjust_tail, "xdp_adjust_tail", adjust_tail},
    {BPF_FUNC_ktime_get_boot_ns, "ktime_get_boot_ns", ktime_get_boot_ns},
    {BPF_FUNC_check_mtu, "check_mtu", check_mtu},
    {BPF_FUNC_snprintf, "snprintf", helper_snprintf},
    {BPF_FUNC_strncmp, "strncmp", helper_strncmp},
    {BPF_FUNC_xdp_get_buff_len, "xdp_get_buff_len", get_buff_len},
    {BPF_FUNC_xdp_load_bytes, "xdp_load_bytes", load_bytes},
    {BPF_FUNC_xdp_store_bytes, "xdp_store_bytes", store_bytes},
};

}  // namespace

std::span<const HelperEntry> packet_helpers() { return kPacketHelpers; }

}  // namespace sluice
