// Any bytes as the instructions of an XDP program that nobody has verified.
//
// What check_image() refuses is refused with a sentence. What it passes runs in the checked
// interpreter, on a packet of the input's, with maps and all helpers, and must stay within its own
// memory: guard bytes around the packet, and the sanitizers, say so. It is compiled, too, but not
// run: compiled code checks nothing.
//
// The input: a byte for the packet's length, one that says how often it runs and, in its uppermost
// bit, whether the instructions are taken as they are. Else what only hinders is mended, so that
// more programs pass the check: registers, jumps and numbers that are none. Then instructions.
#include <sys/mman.h>

#include <algorithm>
#include <cstring>

#include "base/assert.h"
#include "base/limits.h"
#include "base/log.h"
#include "fuzz_input.h"
#include "xdp/interpreter.h"
#include "xdp/map.h"
#include "xdp/opcode_check.h"
#include "xdp/run_state.h"
#include "xdp/xdp_program.h"

namespace sluice {
namespace {

constexpr size_t kInstructionsMax = 512;
constexpr uint64_t kBudget = 20'000;
constexpr uint8_t kGuard = 0xa7;

std::vector<std::unique_ptr<XdpMap>> make_maps() {
  const MapShape shapes[] = {
      {.type = BPF_MAP_TYPE_ARRAY, .key_size = 4, .value_size = 12, .max_entries = 5},
      {.type = BPF_MAP_TYPE_HASH, .key_size = 4, .value_size = 8, .max_entries = 8},
      {.type = BPF_MAP_TYPE_PERCPU_ARRAY, .key_size = 4, .value_size = 4, .max_entries = 3},
      {.type = BPF_MAP_TYPE_DEVMAP, .key_size = 4, .value_size = 4, .max_entries = 4},
      {.type = BPF_MAP_TYPE_QUEUE, .key_size = 0, .value_size = 8, .max_entries = 4},
      {.type = BPF_MAP_TYPE_PROG_ARRAY, .key_size = 4, .value_size = 4, .max_entries = 2},
      {.type = BPF_MAP_TYPE_LRU_HASH, .key_size = 6, .value_size = 20, .max_entries = 8},
      {.type = BPF_MAP_TYPE_RINGBUF, .key_size = 0, .value_size = 0, .max_entries = 4096},
  };
  std::vector<std::unique_ptr<XdpMap>> maps;
  for (const MapShape& shape : shapes) {
    auto map = create_map(shape, {.worker_count = 1});
    SLUICE_ASSERT(static_cast<bool>(map));
    maps.push_back(std::move(*map));
  }
  return maps;
}

// Three pages, the middle one the frame's chunk; all below 4 GiB.
uint8_t* guarded_chunk() {
  static uint8_t* const memory = [] {
    void* pages =
        ::mmap(reinterpret_cast<void*>(0x10000000), 3 * kChunkBytes, PROT_READ | PROT_WRITE,
               MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
    SLUICE_ASSERT(pages != MAP_FAILED);
    std::memset(pages, kGuard, 3 * kChunkBytes);
    return static_cast<uint8_t*>(pages);
  }();
  return memory + kChunkBytes;
}

bool is_guard(const uint8_t* begin, const uint8_t* end) {
  for (; begin != end; ++begin)
    if (*begin != kGuard) return false;
  return true;
}

constexpr uint32_t kMapCount = 8;

// The number of a helper that is offered.
int32_t some_helper(uint32_t number) {
  static const std::vector<int32_t> ids = [] {
    std::vector<int32_t> offered;
    for (uint32_t id = 0; id < 256; ++id)
      if (standard_helpers().is_offered(id)) offered.push_back(static_cast<int32_t>(id));
    return offered;
  }();
  return ids[number % ids.size()];
}

void mend_one(std::vector<Instruction>& code, size_t i) {
  Instruction& instruction = code[i];
  const auto count = static_cast<int64_t>(code.size());
  const auto number = static_cast<uint32_t>(instruction.imm);
  instruction.dst_reg %= 11;
  instruction.src_reg %= 11;
  if (is_wide(instruction) && i + 2 < code.size()) {
    static constexpr uint8_t kKinds[] = {0, 1, 1, 2, 4};
    instruction.off = 0;
    instruction.src_reg = kKinds[instruction.src_reg % std::size(kKinds)];
    const bool names_map = instruction.src_reg == 1 || instruction.src_reg == 2;
    if (names_map) instruction.imm = static_cast<int32_t>(number % kMapCount);
    if (instruction.src_reg == 2) instruction.imm = 0;  // only an array has globals
    if (instruction.src_reg == 4) instruction.imm = static_cast<int32_t>(number % 8);
    code[i + 1] = {0, 0, 0, 0, names_map ? code[i + 1].imm & 7 : code[i + 1].imm};
  } else if (is_call(instruction)) {
    const bool is_subprogram = instruction.src_reg == 1;
    instruction = {instruction.code, 0, is_subprogram, 0,
                   is_subprogram ? static_cast<int32_t>(number % 8) : some_helper(number)};
  } else if (is_jump(instruction) && !is_exit(instruction)) {
    const int64_t distance = static_cast<int64_t>(i) + 1 + instruction.off % 16;
    const int64_t target = std::clamp<int64_t>(distance, 0, count - 1);
    instruction.off = static_cast<int16_t>(target - static_cast<int64_t>(i) - 1);
  }
  // What still stands where nothing may stand.
  if (!fault_of(instruction).empty()) instruction.off = 0;
  if (!fault_of(instruction).empty()) instruction.src_reg = 0;
  if (!fault_of(instruction).empty()) instruction.imm = 0;
  if (!fault_of(instruction).empty())
    instruction = {BPF_ALU64 | BPF_MOV | BPF_K, instruction.dst_reg, 0, 0,
                   static_cast<int32_t>(number)};
}

void mend(std::vector<Instruction>& code) {
  code.push_back({BPF_JMP | BPF_EXIT, 0, 0, 0, 0});
  for (size_t i = 0; i < code.size(); ++i) {
    mend_one(code, i);
    if (is_wide(code[i])) ++i;
  }
}

void run(const XdpProgram& program, size_t packet_bytes) {
  uint8_t* const chunk = guarded_chunk();
  uint8_t* const chunk_end = chunk + kChunkBytes - kTailroomBytes;
  static constexpr uint32_t kMtus[] = {0, 1500, 9000};
  xdp_md context{};
  context.data = static_cast<uint32_t>(reinterpret_cast<uint64_t>(chunk) + kHeadroomBytes);
  context.data_meta = context.data;
  context.data_end = context.data + static_cast<uint32_t>(packet_bytes);
  context.ingress_ifindex = 1;
  run_state = {};
  run_state.context = &context;
  run_state.chunk = chunk;
  run_state.chunk_end = chunk_end;
  run_state.port_mtus = kMtus;
  (void)interpret_checked(program.program_image(), {reinterpret_cast<uint64_t>(&context)},
                          {.regions = {}, .context = &context, .instructions_max = kBudget});
  run_state = {};
  const auto begin = static_cast<uint32_t>(reinterpret_cast<uint64_t>(chunk));
  const auto end = static_cast<uint32_t>(reinterpret_cast<uint64_t>(chunk_end));
  SLUICE_ASSERT(context.data_meta >= begin && context.data_meta <= context.data);
  SLUICE_ASSERT(context.data <= context.data_end && context.data_end <= end);
  SLUICE_ASSERT(is_guard(chunk - kChunkBytes, chunk));
  SLUICE_ASSERT(is_guard(chunk_end, chunk + 2 * kChunkBytes));
}

}  // namespace
}  // namespace sluice

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t bytes) {
  using namespace sluice;
  set_log_level(LogLevel::error);
  FuzzInput input(data, bytes);
  const size_t packet_bytes = 14 + input.byte();
  const uint8_t how = input.byte();
  const int runs = 1 + how % 3;
  std::vector<Instruction> code(std::min((bytes < 2 ? 0 : bytes - 2) / 8, kInstructionsMax));
  if (code.empty()) return 0;
  const std::vector<uint8_t> raw = input.bytes(code.size() * sizeof(Instruction));
  std::memcpy(code.data(), raw.data(), raw.size());
  if ((how & 0x80) == 0) mend(code);
  const auto maps = make_maps();
  SLUICE_ASSERT(maps.size() == kMapCount);
  std::vector<MapRef> refs;
  for (const auto& map : maps) refs.push_back(map->ref());
  auto program =
      XdpProgram::create({code, refs}, {.engine = XdpProgram::Engine::checked, .name = "fuzzed"});
  if (!program) {
    SLUICE_ASSERT(!program.error().text.empty());
    return 0;
  }
  const uint32_t slot = 0;
  (*std::find_if(maps.begin(), maps.end(), [](const auto& map) {
    return map->shape().type == BPF_MAP_TYPE_PROG_ARRAY;
  }))->put_program(slot, program->get(), 1);
  for (int i = 0; i < runs; ++i) run(**program, packet_bytes);
  (void)compile((*program)->program_image());
  return 0;
}
