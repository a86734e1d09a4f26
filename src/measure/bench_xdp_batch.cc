// s2-batch: what it is worth to take a guest's packets in batches, with an XDP program and without.
//
// `sluice pktgen` (txonly, 64 bytes, burst 256) on CPU 0, `sluice run` on CPU 1. Before and after
// are one program and one knob: `--batch 1` and `--batch 64`. A last pair compares where a program
// that drops everything runs: in the kernel, on the TAP, and in us. CPU time is all that CPU 1 has
// worked, softirqs included.
//
// Programs are written here as instructions, verified by the kernel and attached over the control
// socket, as `sluice xdp attach` would.
#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <linux/if.h>
#include <linux/if_link.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <thread>

#include "control/control_client.h"
#include "control/xdp_wire.h"
#include "measure/bench_kit.h"
#include "measure/benchmark.h"
#include "measure/child.h"

namespace sluice {
namespace {

using nlohmann::json;

constexpr int kDriverCpu = 0;
constexpr int kBackEndCpu = 1;
constexpr double kReadySecondsMax = 10;

enum class Destination : uint8_t { null, tap };
enum class Verdict : uint8_t { no_program, drop, redirect, kernel_drop };

struct Variant {
  Destination destination = Destination::null;
  Verdict verdict = Verdict::no_program;
  uint32_t batch = 64;
};

struct Half {
  double frames_per_s = 0;
  double ns_a_frame = 0;
};

struct Halves {
  Series frames, cpu;
  void add(const Half& half) {
    frames.push_back(half.frames_per_s / 1e6);
    cpu.push_back(half.ns_a_frame);
  }
};

std::vector<Instruction> drop_all() {
  return {{BPF_ALU64 | BPF_MOV | BPF_K, 0, 0, 0, XDP_DROP}, {BPF_JMP | BPF_EXIT, 0, 0, 0, 0}};
}

std::vector<Instruction> redirect_all(int32_t port) {
  return {{BPF_ALU64 | BPF_MOV | BPF_K, 1, 0, 0, port},
          {BPF_ALU64 | BPF_MOV | BPF_K, 2, 0, 0, 0},
          {BPF_JMP | BPF_CALL, 0, 0, 0, BPF_FUNC_redirect},
          {BPF_JMP | BPF_EXIT, 0, 0, 0, 0}};
}

Result<Fd> verified(const std::vector<Instruction>& code) {
  Fd program(bpf_prog_load(BPF_PROG_TYPE_XDP, "bench", "GPL", code.data(), code.size(), nullptr));
  if (!program)
    return fail("the kernel does not verify the benchmark's program: {}", errno_text(errno));
  return program;
}

Result<void> attach(const std::string& control, const std::vector<Instruction>& code) {
  auto fd = verified(code);
  if (!fd) return fd.error();
  XdpObject object;
  object.path = "the benchmark";
  object.programs.push_back({"bench", code, std::move(*fd)});
  const auto wired = object_to_wire(object);
  if (!wired) return wired.error();
  const auto answer = ask_daemon(
      control, {{"command", "xdp_attach"}, {"port", "vm0"}, {"object", wired->description}},
      wired->fds);
  if (!answer) return answer.error();
  return {};
}

// Runs `what` in the network namespace of a process; its failure is the answer.
Result<void> in_namespace_of(pid_t pid, const std::function<Result<void>()>& what) {
  Result<void> result;
  std::thread([&] {
    const Fd space(::open(fmt::format("/proc/{}/ns/net", pid).c_str(), O_RDONLY | O_CLOEXEC));
    if (!space || ::setns(space.get(), CLONE_NEWNET) != 0)
      result = fail("no way into the back end's namespace: {}", errno_text(errno));
    else
      result = what();
  }).join();
  return result;
}

// The TAP up, and the kernel's own program on it if asked for.
Result<void> prepare_tap(bool with_program) {
  const Fd socket(::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  ifreq request{};
  std::snprintf(request.ifr_name, sizeof request.ifr_name, "tap0");
  request.ifr_flags = IFF_UP;
  if (::ioctl(socket.get(), SIOCSIFFLAGS, &request) != 0)
    return fail("tap0 does not come up: {}", errno_text(errno));
  if (!with_program) return {};
  if (::ioctl(socket.get(), SIOCGIFINDEX, &request) != 0)
    return fail("there is no tap0: {}", errno_text(errno));
  const auto program = verified(drop_all());
  if (!program) return program.error();
  const int error =
      bpf_xdp_attach(request.ifr_ifindex, program->get(), XDP_FLAGS_DRV_MODE, nullptr);
  if (error != 0) return fail("tap0 takes no program: {}", errno_text(-error));
  return {};
}

std::vector<std::string> daemon_words(const Variant& variant, const ScratchFolder& folder) {
  std::vector<std::string> words;
  const bool has_tap = variant.destination == Destination::tap;
  if (has_tap) words = {"unshare", "--net"};
  for (const std::string& word :
       {own_program(), std::string("run"), std::string("--vm"),
        fmt::format("vm0,socket={}/vm0.sock,offload=off", folder.path), std::string("--null"),
        std::string("n0"), std::string("--poll-us"), std::string("50"), std::string("--batch"),
        fmt::format("{}", variant.batch), std::string("--cpus"), fmt::format("{}", kBackEndCpu),
        std::string("--control"), folder.path + "/control.sock"})
    words.push_back(word);
  if (has_tap)
    words.insert(words.end(), {"--tap", "t0,ifname=tap0", "--connect", "vm0:t0"});
  else
    words.insert(words.end(), {"--null", "n1", "--connect", "vm0:n1"});
  return words;
}

// Frames are redirected to n0, which has no cable of its own.
Result<void> prepare(const Variant& variant, const ScratchFolder& folder, pid_t pid) {
  const std::string control = folder.path + "/control.sock";
  if (variant.destination == Destination::tap) {
    const bool in_kernel = variant.verdict == Verdict::kernel_drop;
    auto ready = in_namespace_of(pid, [in_kernel] { return prepare_tap(in_kernel); });
    if (!ready) return ready;
  }
  if (variant.verdict == Verdict::drop) return attach(control, drop_all());
  if (variant.verdict != Verdict::redirect) return {};
  const auto ports = ask_daemon(control, "ports");
  if (!ports) return ports.error();
  for (const json& port : (*ports)["ports"])
    if (port["name"] == "n0") return attach(control, redirect_all(port["number"].get<int>()));
  return fail("the back end shows no port n0");
}

Result<Half> run_half(const Variant& variant, double seconds) {
  const ScratchFolder folder;
  if (folder.path.empty()) return fail("no folder for sockets in /tmp");
  auto daemon = Child::start(daemon_words(variant, folder), kBackEndCpu);
  if (!daemon) return fail(daemon.error());
  if (!(*daemon)->wait_for("ready", kReadySecondsMax))
    return fail("the back end did not start: {}", (*daemon)->output());
  if (auto ready = prepare(variant, folder, (*daemon)->pid()); !ready) return ready.error();
  auto generator = Child::start(
      {own_program(), "pktgen", "--socket", folder.path + "/vm0.sock", "--mode", "txonly", "--size",
       "64", "--burst", "256", "--seconds", fmt::format("{}", seconds), "--cpu",
       fmt::format("{}", kDriverCpu), "--irq-cpu", fmt::format("{}", kDriverCpu), "--json"},
      kDriverCpu);
  if (!generator) return fail(generator.error());
  const double before_s = cpu_busy_seconds(kBackEndCpu);
  auto status = (*generator)->wait_until_ended(seconds + 20);
  if (!status) return fail(status.error());
  const double busy_s = cpu_busy_seconds(kBackEndCpu) - before_s;
  const json said = last_object((*generator)->output());
  if (*status != 0 || !said.is_object() || figure(said, "frames_sent") == 0)
    return fail("pktgen ended with {}: {}", *status, (*generator)->output());
  const double frames = figure(said, "frames_sent");
  return Half{.frames_per_s = frames / figure(said, "seconds"),
              .ns_a_frame = busy_s * 1e9 / frames};
}

struct Pair {
  const char* label;
  const char* before_label;
  const char* after_label;
  Variant before, after;
  std::optional<double> document_gain;
};

constexpr Variant with(Destination destination, Verdict verdict, uint32_t batch) {
  return {destination, verdict, batch};
}

const Pair kPairs[] = {
    {"XDP_DROP", "batch 1", "batch 64", with(Destination::null, Verdict::drop, 1),
     with(Destination::null, Verdict::drop, 64), 0.448},
    {"XDP_REDIRECT to a second port", "batch 1", "batch 64",
     with(Destination::null, Verdict::redirect, 1), with(Destination::null, Verdict::redirect, 64),
     0.29},
    {"TAP, no program", "batch 1", "batch 64", with(Destination::tap, Verdict::no_program, 1),
     with(Destination::tap, Verdict::no_program, 64), std::nullopt},
    {"XDP_DROP, in the kernel on the TAP and in us", "kernel", "us",
     with(Destination::tap, Verdict::kernel_drop, 64), with(Destination::tap, Verdict::drop, 64),
     std::nullopt},
    {"a program that drops, against none (null)", "none", "drop",
     with(Destination::null, Verdict::no_program, 64), with(Destination::null, Verdict::drop, 64),
     std::nullopt},
};

void add_rows(Report& report, const Pair& pair, const Halves& before, const Halves& after) {
  const auto row = [&](const char* what, const char* unit, const Series Halves::*member,
                       bool more_is_better) {
    ReportRow made{.label = fmt::format("{}: {}", pair.label, what),
                   .unit = unit,
                   .before_label = pair.before_label,
                   .after_label = pair.after_label,
                   .before = before.*member,
                   .after = after.*member,
                   .more_is_better = more_is_better,
                   .document = {},
                   .notes = {}};
    if (more_is_better && pair.document_gain)
      made.document = DocumentFigures{std::nullopt, std::nullopt, pair.document_gain};
    report.rows.push_back(std::move(made));
  };
  row("frames", "M/s", &Halves::frames, true);
  row("CPU time", "ns a frame", &Halves::cpu, false);
}

}  // namespace

Result<Report> bench_xdp_batch(const BenchOptions& options) {
  Report report{.name = "s2-batch",
                .title = "a guest's packets one by one, and in batches of up to 64",
                .setup =
                    "pktgen txonly, 64-byte frames, burst 256, on CPU 0; sluice run on CPU 1, "
                    "whose whole busy time is counted",
                .rows = {},
                .skips = {}};
  if (options.cpu_count < 2) {
    report.skips.push_back({"all rows", "two CPUs are needed, one a side"});
    return report;
  }
  if (::geteuid() != 0) {
    report.skips.push_back({"all rows", "programs and TAPs need root"});
    return report;
  }
  for (const Pair& pair : kPairs) {
    Halves before, after;
    for (uint32_t round = 0; round < options.rounds; ++round) {
      for (const bool is_after : {false, true}) {
        options.progress(fmt::format("s2-batch: {}, {}, round {} of {}", pair.label,
                                     is_after ? pair.after_label : pair.before_label, round + 1,
                                     options.rounds));
        auto half = run_half(is_after ? pair.after : pair.before, options.seconds);
        if (!half) return fail(half.error());
        (is_after ? after : before).add(*half);
      }
    }
    add_rows(report, pair, before, after);
  }
  report.skips.push_back(
      {"macvtap", "it needs an interface below it, which is not ours to choose"});
  return report;
}

}  // namespace sluice
