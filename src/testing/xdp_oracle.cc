#include "testing/xdp_oracle.h"

#include <bpf/bpf.h>
#include <linux/bpf.h>
#include <net/if.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/socket.h>

#include <array>
#include <cerrno>
#include <cstring>

#include "base/limits.h"
#include "xdp/interpreter.h"
#include "xdp/run_state.h"

namespace sluice {
namespace {

constexpr size_t kLogBytes = 1 << 20;

uint32_t loopback_mtu() {
  const Fd socket(::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  ifreq request{};
  std::strcpy(request.ifr_name, "lo");
  if (!socket || ::ioctl(socket.get(), SIOCGIFMTU, &request) != 0) return 0;
  return static_cast<uint32_t>(request.ifr_mtu);
}

}  // namespace

std::ostream& operator<<(std::ostream& out, const OracleOutcome& outcome) {
  if (outcome.error != 0) return out << "error " << outcome.error;
  out << outcome.returned << ", " << outcome.meta_bytes << " + "
      << outcome.bytes.size() - outcome.meta_bytes << " bytes:";
  for (size_t i = 0; i < outcome.bytes.size() && i < 128; ++i)
    out << (i % 16 == 0 ? "\n " : " ") << fmt::format("{:02x}", outcome.bytes[i]);
  return out;
}

bool kernel_takes_programs() {
  const Instruction nothing[] = {{BPF_ALU64 | BPF_MOV | BPF_K, 0, 0, 0, XDP_PASS},
                                 {BPF_JMP | BPF_EXIT, 0, 0, 0, 0}};
  return static_cast<bool>(KernelProgram::load(nothing));
}

Result<KernelProgram> KernelProgram::load(std::span<const Instruction> instructions) {
  std::string log(kLogBytes, '\0');
  LIBBPF_OPTS(bpf_prog_load_opts, options);
  options.log_buf = log.data();
  options.log_size = static_cast<uint32_t>(log.size());
  options.log_level = 1;
  Fd fd(::bpf_prog_load(BPF_PROG_TYPE_XDP, "sluice_oracle", "GPL", instructions.data(),
                        instructions.size(), &options));
  if (!fd) {
    const int error = errno;
    log.resize(std::strlen(log.c_str()));
    constexpr size_t kShown = 400;
    return fail("{}: {}", errno_text(error),
                log.size() > kShown ? log.substr(log.size() - kShown) : log);
  }
  KernelProgram program(fd.get());
  program.owned_ = std::move(fd);
  return program;
}

OracleOutcome KernelProgram::run(std::span<const uint8_t> packet) const {
  OracleOutcome outcome;
  outcome.bytes.resize(kChunkBytes);
  xdp_md before{}, after{};
  before.data_end = static_cast<uint32_t>(packet.size());
  LIBBPF_OPTS(bpf_test_run_opts, options);
  options.data_in = packet.data();
  options.data_size_in = static_cast<uint32_t>(packet.size());
  options.data_out = outcome.bytes.data();
  options.data_size_out = static_cast<uint32_t>(outcome.bytes.size());
  options.ctx_in = &before;
  options.ctx_size_in = sizeof before;
  options.ctx_out = &after;
  options.ctx_size_out = sizeof after;
  options.repeat = 1;
  if (::bpf_prog_test_run_opts(fd_, &options) != 0) outcome.error = errno;
  outcome.bytes.resize(outcome.error == 0 ? options.data_size_out : 0);
  outcome.returned = options.retval;
  outcome.meta_bytes = after.data;
  return outcome;
}

uint8_t* low_page() {
#ifdef MAP_32BIT
  constexpr int kLow = MAP_32BIT;
#else
  constexpr int kLow = 0;
#endif
  void* page = ::mmap(nullptr, kChunkBytes, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | kLow, -1, 0);
  if (page == MAP_FAILED) return nullptr;
  if (reinterpret_cast<uint64_t>(page) + kChunkBytes <= UINT32_MAX)
    return static_cast<uint8_t*>(page);
  ::munmap(page, kChunkBytes);
  return nullptr;
}

UserProgram::UserProgram(std::unique_ptr<XdpProgram> program) : program_(std::move(program)) {}

OracleOutcome UserProgram::run(std::span<const uint8_t> packet) const {
  static uint8_t* const chunk = low_page();
  static const std::array<uint32_t, kOraclePort + 1> mtus = {0, loopback_mtu()};
  SLUICE_ASSERT(chunk != nullptr && packet.size() <= kFrameDataBytesMax);
  // As the kernel's page: zeros around the packet.
  std::memset(chunk, 0, kChunkBytes);
  std::memcpy(chunk + kHeadroomBytes, packet.data(), packet.size());
  xdp_md context{};
  context.data = static_cast<uint32_t>(reinterpret_cast<uint64_t>(chunk) + kHeadroomBytes);
  context.data_meta = context.data;
  context.data_end = context.data + static_cast<uint32_t>(packet.size());
  context.ingress_ifindex = kOraclePort;
  run_state = {};
  run_state.context = &context;
  run_state.chunk = chunk;
  run_state.chunk_end = chunk + kChunkBytes - kTailroomBytes;
  run_state.port_mtus = mtus;
  OracleOutcome outcome;
  const uint64_t r1 = reinterpret_cast<uint64_t>(&context);
  InterpretedRun run;
  switch (program_->engine()) {
    case XdpProgram::Engine::compiled:
      run.r0 = program_->entry()(r1, 0, 0, 0, 0);
      break;
    case XdpProgram::Engine::interpreted:
      run = interpret(program_->program_image(), {r1});
      break;
    case XdpProgram::Engine::checked:
      run =
          interpret_checked(program_->program_image(), {r1}, {.regions = {}, .context = &context});
      break;
  }
  run_state = {};
  outcome.error = static_cast<int>(run.fault);
  outcome.returned = static_cast<uint32_t>(run.r0);
  outcome.meta_bytes = context.data - context.data_meta;
  const auto* begin = reinterpret_cast<const uint8_t*>(uint64_t{context.data_meta});
  outcome.bytes.assign(begin, begin + (context.data_end - context.data_meta));
  return outcome;
}

}  // namespace sluice
