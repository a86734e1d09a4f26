// Helpers without a kernel beside them: each limit from both sides. That the kernel's say the same,
// kernel_oracle_test.cc sees.
#include <gtest/gtest.h>
#include <linux/bpf.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string>
#include <vector>

#include "base/limits.h"
#include "xdp/helper_table.h"
#include "xdp/program_testing.h"
#include "xdp/run_state.h"

namespace sluice {
namespace {

constexpr uint32_t kPacketBytes = 100;

class PacketHelpers : public testing::Test {
 protected:
  void SetUp() override {
    if (!low_) GTEST_SKIP() << "no memory below 4 GiB is free here";
    std::memset(low_.data(), 0xee, kChunkBytes);
    context_.data = context_.data_meta = low_.address() + kHeadroomBytes;
    context_.data_end = context_.data + kPacketBytes;
    context_.ingress_ifindex = 2;
    for (uint32_t i = 0; i < kPacketBytes; ++i) packet()[i] = static_cast<uint8_t>(i);
    run_state = {};
    run_state.context = &context_;
    run_state.chunk = low_.data();
    run_state.chunk_end = low_.data() + kChunkBytes - kTailroomBytes;
  }
  void TearDown() override { run_state = {}; }

  int64_t call(uint32_t id, uint64_t r2 = 0, uint64_t r3 = 0, uint64_t r4 = 0, uint64_t r5 = 0) {
    return plain(id, reinterpret_cast<uint64_t>(&context_), r2, r3, r4, r5);
  }
  int64_t plain(uint32_t id, uint64_t r1, uint64_t r2 = 0, uint64_t r3 = 0, uint64_t r4 = 0,
                uint64_t r5 = 0) {
    return static_cast<int64_t>(helpers_.find(id)(r1, r2, r3, r4, r5));
  }
  uint64_t address(const void* pointer) { return reinterpret_cast<uint64_t>(pointer); }
  uint8_t* packet() { return low_.data() + (context_.data - low_.address()); }
  uint32_t bytes() const { return context_.data_end - context_.data; }

  const LowMemory low_;
  const HelperTable helpers_{{packet_helpers()}};
  xdp_md context_{};
};

TEST_F(PacketHelpers, HeadMovesWithinTheHeadroomAndLeavesAnEthernetHeader) {
  EXPECT_EQ(call(BPF_FUNC_xdp_adjust_head, static_cast<uint64_t>(-217)), -EINVAL);
  EXPECT_EQ(call(BPF_FUNC_xdp_adjust_head, kPacketBytes - 13), -EINVAL);
  EXPECT_EQ(call(BPF_FUNC_xdp_adjust_head, 0x80000000u), -EINVAL);
  EXPECT_EQ(bytes(), kPacketBytes);
  EXPECT_EQ(call(BPF_FUNC_xdp_adjust_head, kPacketBytes - 14), 0);
  EXPECT_EQ(bytes(), 14u);
  EXPECT_EQ(packet()[0], kPacketBytes - 14);
  EXPECT_EQ(call(BPF_FUNC_xdp_adjust_head, static_cast<uint64_t>(-216 - 86)), 0);
  EXPECT_EQ(packet(), low_.data() + 40);
}

TEST_F(PacketHelpers, HeadTakesTheMetadataAlong) {
  ASSERT_EQ(call(BPF_FUNC_xdp_adjust_meta, static_cast<uint64_t>(-8)), 0);
  std::memcpy(packet() - 8, "metadata", 8);
  EXPECT_EQ(call(BPF_FUNC_xdp_adjust_head, static_cast<uint64_t>(-209)), -EINVAL);
  EXPECT_EQ(call(BPF_FUNC_xdp_adjust_head, static_cast<uint64_t>(-3)), 0);
  EXPECT_EQ(context_.data - context_.data_meta, 8u);
  EXPECT_EQ(std::memcmp(packet() - 8, "metadata", 8), 0);
  EXPECT_EQ(packet()[3], 0);
  EXPECT_EQ(packet()[4], 1);
}

TEST_F(PacketHelpers, TailGrowsZeroedUpToTheTailroom) {
  const auto room = static_cast<uint32_t>(kFrameDataBytesMax) - kPacketBytes;
  EXPECT_EQ(call(BPF_FUNC_xdp_adjust_tail, room + 1), -EINVAL);
  EXPECT_EQ(call(BPF_FUNC_xdp_adjust_tail, 0x7fffffff), -EINVAL);
  EXPECT_EQ(call(BPF_FUNC_xdp_adjust_tail, room), 0);
  EXPECT_EQ(call(BPF_FUNC_xdp_get_buff_len), static_cast<int64_t>(kFrameDataBytesMax));
  EXPECT_EQ(packet()[kPacketBytes - 1], kPacketBytes - 1);
  for (size_t i = kPacketBytes; i < kFrameDataBytesMax; ++i) ASSERT_EQ(packet()[i], 0);
  EXPECT_EQ(packet()[kFrameDataBytesMax], 0xee);
}

TEST_F(PacketHelpers, TailShrinksToAnEthernetHeader) {
  EXPECT_EQ(call(BPF_FUNC_xdp_adjust_tail, static_cast<uint64_t>(-87)), -EINVAL);
  EXPECT_EQ(call(BPF_FUNC_xdp_adjust_tail, 0x80000000u), -EINVAL);
  EXPECT_EQ(call(BPF_FUNC_xdp_adjust_tail, static_cast<uint64_t>(-86)), 0);
  EXPECT_EQ(bytes(), 14u);
}

TEST_F(PacketHelpers, MetadataIsWordsInFrontOfThePacket) {
  EXPECT_EQ(call(BPF_FUNC_xdp_adjust_meta, 1), -EINVAL);
  EXPECT_EQ(call(BPF_FUNC_xdp_adjust_meta, static_cast<uint64_t>(-217)), -EINVAL);
  EXPECT_EQ(call(BPF_FUNC_xdp_adjust_meta, static_cast<uint64_t>(-6)), -EACCES);
  EXPECT_EQ(call(BPF_FUNC_xdp_adjust_meta, static_cast<uint64_t>(-32)), 0);
  EXPECT_EQ(call(BPF_FUNC_xdp_adjust_meta, 32), 0);
  EXPECT_EQ(context_.data_meta, context_.data);
}

TEST_F(PacketHelpers, BytesAreCopiedOnlyInsideThePacket) {
  uint8_t buffer[8] = {};
  EXPECT_EQ(call(BPF_FUNC_xdp_load_bytes, 93, address(buffer), 8), -EINVAL);
  EXPECT_EQ(call(BPF_FUNC_xdp_load_bytes, 0x10000, address(buffer), 8), -EFAULT);
  EXPECT_EQ(call(BPF_FUNC_xdp_load_bytes, 0xffffffff, address(buffer), 8), -EFAULT);
  EXPECT_EQ(call(BPF_FUNC_xdp_load_bytes, 92, address(buffer), 8), 0);
  EXPECT_EQ(buffer[7], 99);
  EXPECT_EQ(call(BPF_FUNC_xdp_store_bytes, 93, address(buffer), 8), -EINVAL);
  EXPECT_EQ(call(BPF_FUNC_xdp_store_bytes, 0, address(buffer), 8), 0);
  EXPECT_EQ(packet()[0], 92);
  EXPECT_EQ(packet()[8], 8);
}

TEST_F(PacketHelpers, ChecksumsChangeByWhatIsTakenOutAndPutIn) {
  const uint8_t from[4] = {0x12, 0x34, 0, 0}, to[4] = {0x56, 0x78, 0, 0};
  const int64_t taken = plain(BPF_FUNC_csum_diff, address(from), 4, 0, 0, 0);
  const int64_t put = plain(BPF_FUNC_csum_diff, 0, 0, address(to), 4, static_cast<uint64_t>(taken));
  EXPECT_EQ(plain(BPF_FUNC_csum_diff, address(from), 4, address(to), 4, 0), put);
  EXPECT_EQ(plain(BPF_FUNC_csum_diff, 0, 0, address(to), 4, 0), 0x7856);
  EXPECT_EQ(plain(BPF_FUNC_csum_diff, address(from), 4, 0, 0, 0), 0xffff - 0x3412);
  EXPECT_EQ(plain(BPF_FUNC_csum_diff, 0, 0, 0, 0, 0x12345), 0x2346);
}

TEST_F(PacketHelpers, TheLastRedirectCountsUnlessItsFlagsAreWrong) {
  EXPECT_EQ(plain(BPF_FUNC_redirect, 7, 0), XDP_REDIRECT);
  EXPECT_EQ(plain(BPF_FUNC_redirect, 8, 1), XDP_ABORTED);
  EXPECT_EQ(run_state.redirect.kind, RedirectTarget::Kind::port);
  EXPECT_EQ(run_state.redirect.port, 7u);
}

TEST_F(PacketHelpers, MtusArePerPort) {
  const uint32_t mtus[] = {0, 64, 86, 9000};
  run_state.port_mtus = mtus;
  uint32_t mtu = 0;
  EXPECT_EQ(call(BPF_FUNC_check_mtu, 0, address(&mtu), 0, 1), -EINVAL);
  EXPECT_EQ(call(BPF_FUNC_check_mtu, 4, address(&mtu), 0), -ENODEV);
  EXPECT_EQ(call(BPF_FUNC_check_mtu, 0, address(&mtu), 0), BPF_MTU_CHK_RET_SUCCESS);
  EXPECT_EQ(mtu, 86u);
  mtu = 0;
  EXPECT_EQ(call(BPF_FUNC_check_mtu, 0, address(&mtu), 1), BPF_MTU_CHK_RET_FRAG_NEEDED);
  mtu = 9001;
  EXPECT_EQ(call(BPF_FUNC_check_mtu, 3, address(&mtu), 0), BPF_MTU_CHK_RET_FRAG_NEEDED);
  EXPECT_EQ(mtu, 9000u);
}

TEST_F(PacketHelpers, TimeGoesOnAndWorkersAreNumbered) {
  const int64_t before = plain(BPF_FUNC_ktime_get_ns, 0);
  EXPECT_GE(plain(BPF_FUNC_ktime_get_ns, 0), before);
  EXPECT_GE(plain(BPF_FUNC_ktime_get_boot_ns, 0), before);
  run_state.worker_index = 3;
  EXPECT_EQ(plain(BPF_FUNC_get_smp_processor_id, 0), 3);
  EXPECT_NE(plain(BPF_FUNC_get_prandom_u32, 0), plain(BPF_FUNC_get_prandom_u32, 0));
  EXPECT_LE(plain(BPF_FUNC_get_prandom_u32, 0), int64_t{UINT32_MAX});
}

struct TextCase {
  const char* format;
  std::vector<uint64_t> values;
  const char* text;  // null: -EINVAL
};

TEST_F(PacketHelpers, TextsAreTheKernels) {
  const auto name = reinterpret_cast<uint64_t>("vm0");
  const TextCase cases[] = {
      {"plain", {}, "plain"},
      {"%d of %u", {0xffffffff, 0xffffffff}, "-1 of 4294967295"},
      {"%lld %lu", {UINT64_MAX, UINT64_MAX}, "-1 18446744073709551615"},
      {"%x %X %lx", {255, 255, 1ull << 40}, "ff FF 10000000000"},
      {"%5d|%-5d|%05d|%+d", {1, 2, 3, 4}, "    1|2    |00003|+4"},
      {"100%% %s%c", {name, '!'}, "100% vm0!"},
      {"[%s]", {8}, "[]"},
      {"%p %px", {0, 0xabc}, "0000000000000000 0000000000000abc"},
      {"%d", {}, nullptr},
      {"%n", {1}, nullptr},
      {"%f", {1}, nullptr},
      {"%lc", {1}, nullptr},
      {"%hd", {1}, nullptr},
      {"%pI4", {1}, nullptr},
      {"%", {1}, nullptr},
      {"\x01", {}, nullptr},
      {"\xc3\xa4", {}, "\xc3\xa4"},
  };
  for (const TextCase& c : cases) {
    char out[64] = {};
    const int64_t status = plain(BPF_FUNC_snprintf, address(out), sizeof out, address(c.format),
                                 address(c.values.data()), c.values.size() * 8);
    if (c.text == nullptr) {
      EXPECT_EQ(status, -EINVAL) << c.format;
    } else {
      EXPECT_EQ(status, static_cast<int64_t>(std::strlen(c.text)) + 1) << c.format;
      EXPECT_STREQ(out, c.text);
    }
  }
}

TEST_F(PacketHelpers, ATextIsCutWhereItsRoomEnds) {
  char out[4] = {'x', 'x', 'x', 'x'};
  EXPECT_EQ(plain(BPF_FUNC_snprintf, address(out), 3, address("abcdef"), 0, 0), 7);
  EXPECT_STREQ(out, "ab");
  EXPECT_EQ(out[3], 'x');
  EXPECT_EQ(plain(BPF_FUNC_snprintf, address(out), 0, address("abcdef"), 0, 0), 7);
  const uint64_t value = 1;
  EXPECT_EQ(plain(BPF_FUNC_snprintf, address(out), 3, address("%999999999d"), address(&value), 8),
            1025);
  EXPECT_EQ(plain(BPF_FUNC_snprintf, address(out), 3, address("a"), address(&value), 7), -EINVAL);
}

TEST_F(PacketHelpers, AStringIsReadUpToTheEndOfItsMemory) {
  const auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  auto* memory = static_cast<char*>(
      mmap(nullptr, 2 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  ASSERT_EQ(mprotect(memory + page, page, PROT_NONE), 0);
  std::memcpy(memory + page - 4, "end", 4);
  uint64_t value = address(memory + page - 4);
  char out[16];
  EXPECT_EQ(plain(BPF_FUNC_snprintf, address(out), 16, address("<%s>"), address(&value), 8), 6);
  EXPECT_STREQ(out, "<end>");
  memory[page - 1] = '!';
  EXPECT_EQ(plain(BPF_FUNC_snprintf, address(out), 16, address("<%s>"), address(&value), 8), 3);
  munmap(memory, 2 * page);
}

TEST_F(PacketHelpers, TracingIsShownAFewTimesOnly) {
  testing::internal::CaptureStderr();
  const char format[] = "drop %d\n";
  for (uint64_t i = 0; i < 1000; ++i)
    EXPECT_GT(plain(BPF_FUNC_trace_printk, address(format), sizeof format, i), 0);
  EXPECT_EQ(plain(BPF_FUNC_trace_printk, address(format), sizeof format - 1, 0), -EINVAL);
  const std::string log = testing::internal::GetCapturedStderr();
  EXPECT_NE(log.find("xdp: drop 0"), std::string::npos);
  EXPECT_LE(std::count(log.begin(), log.end(), '\n'), 100);
}

TEST_F(PacketHelpers, StringsAreCompared) {
  EXPECT_EQ(plain(BPF_FUNC_strncmp, address("abc"), 4, address("abd")), -1);
  EXPECT_EQ(plain(BPF_FUNC_strncmp, address("abd"), 4, address("abc")), 1);
  EXPECT_EQ(plain(BPF_FUNC_strncmp, address("abd"), 2, address("abc")), 0);
}

}  // namespace
}  // namespace sluice
