// Our helpers and engines against the kernel's: random sequences of helper calls with deltas around
// every limit, on packets of every length. Each answer goes into the number that the program
// returns.
#include <bpf/bpf.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <random>

#include "base/fd.h"
#include "base/limits.h"
#include "testing/xdp_oracle.h"
#include "xdp/map.h"
#include "xdp/program_testing.h"

namespace sluice {
namespace {

using Engine = XdpProgram::Engine;

// r6: the context; r7: the sum of the answers; r8: the sequence's first bytes on the stack.
class Sequence {
 public:
  Sequence(uint32_t seed, bool has_metadata) : random_(seed), has_metadata_(has_metadata) {
    add({BPF_ALU64 | BPF_MOV | BPF_X, 6, 1, 0, 0});
    add(mov(7, 0));
    for (int16_t at = -256; at < 0; at += 8) {
      add({BPF_LD | BPF_DW | BPF_IMM, 1, 0, 0, number()});
      add({0, 0, 0, 0, number()});
      add(store(8, 10, at, 1));
    }
  }

  std::vector<Instruction> make(int calls) {
    for (int i = 0; i < calls; ++i) add_call();
    add({BPF_ALU64 | BPF_MOV | BPF_X, 0, 7, 0, 0});
    add(exit_now());
    return code_;
  }

 private:
  void add(const Instruction& instruction) { code_.push_back(instruction); }
  int32_t number() { return static_cast<int32_t>(random_()); }
  int32_t below(int32_t bound) { return static_cast<int32_t>(random_() % uint32_t(bound)); }
  template <size_t n>
  int32_t one_of(const int32_t (&values)[n]) {
    return values[random_() % n];
  }

  void take_context() { add({BPF_ALU64 | BPF_MOV | BPF_X, 1, 6, 0, 0}); }
  void take_stack(uint8_t to, int32_t offset) {
    add({BPF_ALU64 | BPF_MOV | BPF_X, to, 10, 0, 0});
    add({BPF_ALU64 | BPF_ADD | BPF_K, to, 0, 0, offset});
  }
  // r7 = r7 * 31 + r0
  void call(int32_t id) {
    add(call_helper(id));
    mix();
  }
  void mix() {
    add({BPF_ALU64 | BPF_MUL | BPF_K, 7, 0, 0, 31});
    add(add_register(7, 0));
  }
  void mix_stack(int16_t at) {
    add(load(8, 0, 10, at));
    mix();
    add({BPF_ALU64 | BPF_RSH | BPF_K, 0, 0, 0, 32});
    mix();
  }

  int32_t delta() {
    static constexpr int32_t kEdges[] = {0,    1,    -1,    2,     4,      -4,        -8,
                                         14,   -14,  -32,   -36,   -40,    -215,      -216,
                                         -217, -256, -257,  3463,  3500,   3520,      3521,
                                         3736, 4096, -4096, 65535, -65535, INT32_MAX, INT32_MIN};
    return below(3) == 0 ? one_of(kEdges) : below(120) - 60;
  }
  int32_t small_size() { return below(4) == 0 ? 0 : 4 * below(33); }

  void add_call() {
    switch (below(10)) {
      case 0:
      case 1:
        return adjust(BPF_FUNC_xdp_adjust_head);
      case 2:
      case 3:
        return adjust(BPF_FUNC_xdp_adjust_tail);
      case 4:
        return has_metadata_ ? adjust_meta() : adjust(BPF_FUNC_xdp_adjust_head);
      case 5:
        take_context();
        return call(BPF_FUNC_xdp_get_buff_len);
      case 6:
        return copy_bytes();
      case 7:
        return csum_diff();
      case 8:
        add(mov(1, below(3)));
        add(mov(2, one_of({0, 0, 1, -1})));
        return call(BPF_FUNC_redirect);
      default:
        return check_mtu();
    }
  }

  void adjust(int32_t id) {
    take_context();
    add(mov(2, delta()));
    call(id);
  }
  // How much metadata there may be depends on the kernel's age: 32 bytes, or 252.
  void adjust_meta() {
    take_context();
    add(mov(2, one_of({0, -4, -8, -12, -3, -1, 1, 4, 8, -300, INT32_MAX, INT32_MIN})));
    call(BPF_FUNC_xdp_adjust_meta);
  }
  void copy_bytes() {
    const bool is_load = below(2) == 0;
    const int32_t bytes = 1 + below(64);
    take_context();
    add(mov(2, below(3) == 0 ? one_of({-1, 0xffff, 0x10000, 3520, 3519}) : below(100)));
    take_stack(3, is_load ? -64 : -128);
    add(mov(4, bytes));
    call(is_load ? BPF_FUNC_xdp_load_bytes : BPF_FUNC_xdp_store_bytes);
    if (is_load) mix_stack(-64);
  }
  // Kernels before 6.13 leave the sum unfolded, which means the same.
  void csum_diff() {
    const int32_t from = small_size(), to = small_size();
    take_stack(1, -256);
    add(mov(2, from));
    take_stack(3, -128);
    add(mov(4, to));
    add(mov(5, below(2) == 0 ? 0 : number()));
    add(call_helper(BPF_FUNC_csum_diff));
    for (int i = 0; i < 2; ++i) {
      add({BPF_ALU64 | BPF_MOV | BPF_X, 1, 0, 0, 0});
      add({BPF_ALU64 | BPF_AND | BPF_K, 1, 0, 0, 0xffff});
      add({BPF_ALU | BPF_RSH | BPF_K, 0, 0, 0, 16});
      add(add_register(0, 1));
    }
    mix();
  }
  void check_mtu() {
    add(store_number(4, 10, -136, one_of({0, 0, 1, 1500, 65535, 65536, 65537, INT32_MAX, -1})));
    take_context();
    add(mov(2, one_of({0, 0, 1, 0x7fffff})));
    take_stack(3, -136);
    add(mov(4, one_of({0, 1, -1, 100, 65000, INT32_MAX, INT32_MIN})));
    add(mov(5, one_of({0, 0, 0, 1})));
    call(BPF_FUNC_check_mtu);
    mix_stack(-136);
  }

  std::mt19937 random_;
  const bool has_metadata_;
  std::vector<Instruction> code_;
};

// Some kernels are built without it.
bool kernel_has_metadata() {
  const Instruction code[] = {mov(2, 0), call_helper(BPF_FUNC_xdp_adjust_meta), mov(0, XDP_PASS),
                              exit_now()};
  return static_cast<bool>(KernelProgram::load(code));
}

std::vector<uint8_t> random_packet(std::mt19937& random) {
  static constexpr size_t kSizes[] = {14, 15, 60, 64, 100, 1514, 3519, 3520};
  const size_t bytes = random() % 2 == 0 ? kSizes[random() % std::size(kSizes)]
                                         : 14 + random() % (kFrameDataBytesMax - 13);
  std::vector<uint8_t> packet(bytes);
  for (uint8_t& byte : packet) byte = static_cast<uint8_t>(random());
  return packet;
}

class KernelOracle : public testing::Test {
 protected:
  void SetUp() override {
    if (!kernel_takes_programs()) GTEST_SKIP() << "the kernel lets nobody load programs here";
    if (low_page() == nullptr) GTEST_SKIP() << "no memory below 4 GiB is free here";
  }

  static std::vector<UserProgram> engines_for(const std::vector<Instruction>& code,
                                              std::initializer_list<Engine> engines,
                                              std::span<const MapRef> maps = {}) {
    std::vector<UserProgram> programs;
    for (const Engine engine : engines) {
#ifndef __x86_64__
      if (engine == Engine::compiled) continue;
#endif
      auto program = XdpProgram::create({code, maps}, {.engine = engine});
      EXPECT_TRUE(program) << (program ? "" : program.error().text);
      if (program) programs.emplace_back(std::move(*program));
    }
    return programs;
  }
};

TEST_F(KernelOracle, SequencesOfHelpersAnswerAsTheKernels) {
  std::mt19937 random(1);
  const bool has_metadata = kernel_has_metadata();
  for (uint32_t seed = 0; seed < 400 && !HasFailure(); ++seed) {
    const std::vector<Instruction> code =
        Sequence(seed, has_metadata).make(1 + static_cast<int>(seed % 12));
    const Result<KernelProgram> kernel = KernelProgram::load(code);
    ASSERT_TRUE(kernel) << "seed " << seed << ": " << kernel.error().text;
    const auto ours = engines_for(code, {Engine::compiled, Engine::interpreted, Engine::checked});
    for (int i = 0; i < 20; ++i) {
      const std::vector<uint8_t> packet = random_packet(random);
      const OracleOutcome expected = kernel->run(packet);
      ASSERT_EQ(expected.error, 0);
      for (size_t engine = 0; engine < ours.size(); ++engine)
        ASSERT_EQ(ours[engine].run(packet), expected)
            << "seed " << seed << ", engine " << engine << ", packet of " << packet.size();
    }
  }
}

// What both sides can name: a frozen array with a format at its beginning and a string behind it.
class ConstantText {
 public:
  static constexpr uint32_t kBytes = 128;
  static constexpr int32_t kStringAt = 100;

  explicit ConstantText(const char* format) {
    std::array<char, kBytes> value{};
    std::strcpy(value.data(), format);
    std::strcpy(value.data() + kStringAt, "a string");
    const uint32_t key = 0;
    LIBBPF_OPTS(bpf_map_create_opts, options);
    options.map_flags = BPF_F_RDONLY_PROG;
    fd_ = Fd(::bpf_map_create(BPF_MAP_TYPE_ARRAY, "sluice_text", 4, kBytes, 1, &options));
    is_ready_ = ::bpf_map_update_elem(fd_.get(), &key, value.data(), BPF_ANY) == 0 &&
                ::bpf_map_freeze(fd_.get()) == 0;
    map_ = std::move(*create_map(
        {.type = BPF_MAP_TYPE_ARRAY, .key_size = 4, .value_size = kBytes, .max_entries = 1}, {}));
    is_ready_ &= map_->write(&key, value.data(), BPF_ANY) == 0;
  }
  bool is_ready() const { return is_ready_; }
  int fd() const { return fd_.get(); }
  MapRef ref() const { return map_->ref(); }

 private:
  Fd fd_;
  std::unique_ptr<XdpMap> map_;
  bool is_ready_ = false;
};

// trace_printk (whose format only the run checks), or snprintf (whose format the verifier has
// checked) and what it wrote. `map` is a descriptor for the kernel, an index for us.
std::vector<Instruction> text_program(int32_t map, bool does_trace, const char* format,
                                      const std::array<int64_t, 3>& values) {
  std::vector<Instruction> code = {mov(7, 0)};
  const auto load_text = [&](uint8_t to, int32_t offset) {
    code.push_back({BPF_LD | BPF_DW | BPF_IMM, to, BPF_PSEUDO_MAP_VALUE, 0, map});
    code.push_back({0, 0, 0, 0, offset});
  };
  for (int16_t at = -128; at < 0; at += 8) code.push_back(store_number(8, 10, at, 0x5a5a));
  for (int16_t i = 0; i < 3; ++i) {
    if (values[static_cast<size_t>(i)] == -77) {
      load_text(static_cast<uint8_t>(3 + i), ConstantText::kStringAt);
    } else {
      const auto value = static_cast<uint64_t>(values[static_cast<size_t>(i)]);
      code.push_back({BPF_LD | BPF_DW | BPF_IMM, static_cast<uint8_t>(3 + i), 0, 0,
                      static_cast<int32_t>(value)});
      code.push_back({0, 0, 0, 0, static_cast<int32_t>(value >> 32)});
    }
    code.push_back(store(8, 10, static_cast<int16_t>(-128 + 8 * i), static_cast<uint8_t>(3 + i)));
  }
  if (does_trace) {
    load_text(1, 0);
    for (const Instruction& last : {mov(2, static_cast<int32_t>(std::strlen(format)) + 1),
                                    call_helper(BPF_FUNC_trace_printk), exit_now()})
      code.push_back(last);
    return code;
  }
  const auto count = static_cast<int32_t>(std::count(format, format + std::strlen(format), '%'));
  const auto take_stack = [&](uint8_t to, int32_t offset) {
    code.push_back({BPF_ALU64 | BPF_MOV | BPF_X, to, 10, 0, 0});
    code.push_back({BPF_ALU64 | BPF_ADD | BPF_K, to, 0, 0, offset});
  };
  take_stack(1, -64);
  code.push_back(mov(2, 40));
  load_text(3, 0);
  take_stack(4, -128);
  for (const Instruction& next : {mov(5, count * 8), call_helper(BPF_FUNC_snprintf)})
    code.push_back(next);
  for (int16_t at = -64; at < 0; at += 8)
    for (const Instruction& next :
         {Instruction{BPF_ALU64 | BPF_MUL | BPF_K, 0, 0, 0, 31}, load(4, 1, 10, at),
          add_register(0, 1), Instruction{BPF_ALU64 | BPF_MUL | BPF_K, 0, 0, 0, 31},
          load(4, 1, 10, static_cast<int16_t>(at + 4)), add_register(0, 1)})
      code.push_back(next);
  code.push_back(exit_now());
  return code;
}

struct FormatCase {
  const char* format;
  std::array<int64_t, 3> values = {};
};

TEST_F(KernelOracle, FormatsMeanWhatTheyMeanInTheKernel) {
  constexpr int64_t kString = -77;
  const FormatCase cases[] = {{"nothing"},
                              {"%d %u %i", {-1, -1, INT32_MIN}},
                              {"%ld %lu %lx", {INT64_MIN, -1, -1}},
                              {"%lld %llu %llx", {-5, 5, 1LL << 40}},
                              {"%x|%X|%d", {0xabc, 0xabc, 1LL << 33}},
                              {"%5d|%-5d|%05d", {1, 2, 3}},
                              {"%+d|% d|%-+5d", {1, 2, 3}},
                              {"%08llx|%3x|%03u", {0xbeef, 0x12345, 7}},
                              {"%s|%20s|%-12s", {kString, kString, kString}},
                              {"%c|%3c", {'x', 'y'}},
                              {"%300d", {1}},
                              {"%p", {0}},
                              {"%s", {8}}};
  for (const FormatCase& c : cases)
    for (const bool does_trace : {true, false}) {
      const ConstantText text(c.format);
      ASSERT_TRUE(text.is_ready());
      const auto kernel =
          KernelProgram::load(text_program(text.fd(), does_trace, c.format, c.values));
      if (!kernel && !does_trace) continue;  // an older kernel does not know this format
      ASSERT_TRUE(kernel) << c.format << kernel.error().text;
      const MapRef maps[] = {text.ref()};
      const auto ours = engines_for(text_program(0, does_trace, c.format, c.values),
                                    {Engine::compiled, Engine::interpreted}, maps);
      const std::vector<uint8_t> packet(60);
      for (const UserProgram& program : ours)
        EXPECT_EQ(program.run(packet), kernel->run(packet)) << c.format << ", " << does_trace;
    }
}

TEST_F(KernelOracle, FormatsThatTheKernelRefusesAreRefused) {
  const FormatCase cases[] = {{"%"},   {"%z"},   {"%f"},  {"%hd"}, {"%lc"},  {"%lls"},
                              {"%n"},  {"%l"},   {"%-"},  {"%5"},  {"\x01"}, {"%d%d%d%d"},
                              {"%*d"}, {"%.3d"}, {"%#x"}, {"%ls"}, {"100%"}};
  for (const FormatCase& c : cases) {
    const ConstantText text(c.format);
    ASSERT_TRUE(text.is_ready());
    const auto kernel = KernelProgram::load(text_program(text.fd(), true, c.format, c.values));
    ASSERT_TRUE(kernel) << c.format << kernel.error().text;
    const MapRef maps[] = {text.ref()};
    const auto ours =
        engines_for(text_program(0, true, c.format, c.values), {Engine::interpreted}, maps);
    const std::vector<uint8_t> packet(60);
    const OracleOutcome expected = kernel->run(packet);
    EXPECT_EQ(expected.returned, static_cast<uint32_t>(-EINVAL)) << c.format;
    EXPECT_EQ(ours[0].run(packet), expected) << c.format;
  }
}

}  // namespace
}  // namespace sluice
