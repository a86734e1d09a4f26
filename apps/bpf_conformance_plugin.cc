// bpf_conformance_plugin: our engine behind the protocol of the public BPF conformance suite.
//
//   bpf_conformance_plugin [MEMORY] [--jit | --interpret | --checked] < PROGRAM
//
// PROGRAM is the instructions as hexadecimal bytes, MEMORY likewise: r1 points to it, r2 has its
// length. Prints r0 in hexadecimal; on an error says why, and exits with 1.
#include <fmt/format.h>

#include <cstring>
#include <iostream>
#include <iterator>
#include <optional>
#include <string>
#include <vector>

#include "xdp/compiler.h"
#include "xdp/interpreter.h"
#include "xdp/run_state.h"

namespace sluice {
namespace {

std::optional<std::vector<uint8_t>> bytes_of_hex(const std::string& text) {
  std::vector<uint8_t> bytes;
  std::string digits;
  for (const char c : text) {
    if (std::isspace(static_cast<unsigned char>(c))) continue;
    if (!std::isxdigit(static_cast<unsigned char>(c))) return std::nullopt;
    digits.push_back(c);
    if (digits.size() < 2) continue;
    bytes.push_back(static_cast<uint8_t>(std::stoi(digits, nullptr, 16)));
    digits.clear();
  }
  if (!digits.empty()) return std::nullopt;
  return bytes;
}

// What the suite's programs may call: number 5 gives back its argument.
uint64_t identity(uint64_t r1, uint64_t, uint64_t, uint64_t, uint64_t) { return r1; }
constexpr HelperEntry kHelpers[] = {{5, "unwind", identity}};

Result<uint64_t> run_program(const ProgramImage& image, const std::string& engine,
                             std::vector<uint8_t>& memory) {
  const auto address = memory.empty() ? 0 : reinterpret_cast<uint64_t>(memory.data());
  const ProgramArguments r = {address, memory.size()};
  if (engine == "--interpret") return interpret(image, r).r0;
  if (engine == "--checked") {
    const MemoryRegion region{address, address + memory.size(), true};
    const InterpretedRun run = interpret_checked(image, r, {.regions = {&region, 1}});
    if (run.fault != RunFault::none) return fail("the run was ended: {}", name_of(run.fault));
    return run.r0;
  }
  const Result<CompiledProgram> program = compile(image);
  if (!program) return fail(program.error());
  run_state.tail_calls = 0;
  return program->entry(r[0], r[1], r[2], r[3], r[4]);
}

int run_plugin(int count, char** words) {
  std::string engine = "--jit";
  std::vector<uint8_t> memory;
  for (int i = 1; i < count; ++i) {
    const std::string word = words[i];
    if (word == "--jit" || word == "--interpret" || word == "--checked") {
      engine = word;
      continue;
    }
    const auto bytes = bytes_of_hex(word);
    if (!bytes) {
      fmt::print(stderr,
                 "bpf_conformance_plugin: '{}' is neither memory in hexadecimal nor --jit, "
                 "--interpret or --checked\n",
                 word);
      return 2;
    }
    memory = *bytes;
  }
  const std::string text(std::istreambuf_iterator<char>(std::cin), {});
  const auto bytes = bytes_of_hex(text);
  if (!bytes || bytes->empty() || bytes->size() % sizeof(Instruction) != 0) {
    fmt::print(stderr,
               "bpf_conformance_plugin: the program on standard input is no sequence of "
               "8-byte instructions in hexadecimal\n");
    return 1;
  }
  std::vector<Instruction> code(bytes->size() / sizeof(Instruction));
  std::memcpy(code.data(), bytes->data(), bytes->size());
  const HelperTable helpers({kHelpers});
  const Result<ProgramImage> image = check_image({code, {}, true}, helpers);
  const Result<uint64_t> r0 =
      image ? run_program(*image, engine, memory) : Result<uint64_t>(image.error());
  if (!r0) {
    fmt::print(stderr, "bpf_conformance_plugin: {}\n", r0.error().text);
    return 1;
  }
  fmt::print("{:x}\n", *r0);
  return 0;
}

}  // namespace
}  // namespace sluice

int main(int count, char** words) { return sluice::run_plugin(count, words); }
