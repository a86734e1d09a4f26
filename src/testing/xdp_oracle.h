// The kernel as the oracle of XDP programs: the same packet through BPF_PROG_TEST_RUN and through
// our engines must end the same.
//
//   Result<KernelProgram> kernel = KernelProgram::load(instructions);
//   UserProgram ours(std::move(program));
//   EXPECT_EQ(ours.run(packet), kernel->run(packet));
//
// The kernel runs test packets as if they came from the loopback interface, on this processor; ours
// come from port kOraclePort and run as worker 0. Whoever compares per-CPU maps stays on
// processor 0.
#pragma once

#include <cstdint>
#include <memory>
#include <ostream>
#include <span>
#include <string>
#include <vector>

#include "base/fd.h"
#include "base/result.h"
#include "xdp/instruction.h"
#include "xdp/xdp_program.h"

namespace sluice {

inline constexpr uint32_t kOraclePort = 1;  // the number of the loopback interface

struct OracleOutcome {
  int error = 0;  // the kernel did not run it, or the checked interpreter found a fault
  uint32_t returned = 0;
  uint32_t meta_bytes = 0;     // of `bytes`
  std::vector<uint8_t> bytes;  // metadata and packet
  bool operator==(const OracleOutcome&) const = default;
};
std::ostream& operator<<(std::ostream& out, const OracleOutcome& outcome);

// Whether this process may load programs at all.
bool kernel_takes_programs();

class KernelProgram {
 public:
  // A failure's text is the end of the verifier's log.
  static Result<KernelProgram> load(std::span<const Instruction> instructions);
  // Somebody else's descriptor, which stays theirs.
  explicit KernelProgram(int fd) : fd_(fd) {}

  OracleOutcome run(std::span<const uint8_t> packet) const;

 private:
  Fd owned_;
  int fd_ = -1;
};

class UserProgram {
 public:
  explicit UserProgram(std::unique_ptr<XdpProgram> program);
  // By the engine that the program has.
  OracleOutcome run(std::span<const uint8_t> packet) const;

 private:
  std::unique_ptr<XdpProgram> program_;
};

// A page below 4 GiB, as frames have; null if there is none. It is never given back.
uint8_t* low_page();

}  // namespace sluice
