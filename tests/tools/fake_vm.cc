// fake_vm: a virtual machine for whole-program tests that is only a vhost-user front end, or, with
// --ifname, its peer behind a TAP. Prints one line of JSON at the end.
//
//   fake_vm --socket PATH --mode traffic --frames 1000 --rate 1000 [--expect 1000]
//   fake_vm --ifname tap0 --mode traffic --frames 1000 --rate 1000 --expect 1000
//
// Modes:
//   traffic   sends numbered frames at the rate and judges those that arrive
//   echo      sends back what arrives
//   hostile   does everything wrong, for --seconds, repeatable by --seed
//   truncate  makes its own memory vanish under traffic, then waits to be thrown out
// It ends when it has sent --frames (0: until SIGTERM) and received --expect, or when nothing has
// arrived for --quiet-ms after it sent its last.
// With --hold it sends nothing before SIGUSR1, so that both ends can be ready first.
// With --ready it prints "ready" when its rings run. With --swaps N it replaces its memory table
// and restarts its rings N times under traffic.
#include <arpa/inet.h>
#include <getopt.h>
#include <linux/if_packet.h>
#include <net/if.h>
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <random>

#include "base/clock.h"
#include "fake_vm_hostile.h"
#include "testing/fake_front_end.h"

namespace sluice {
namespace {

constexpr uint16_t kEtherType = 0x88b5;  // for experiments
constexpr size_t kNumberOffset = 14;
constexpr size_t kHeadBytes = kNumberOffset + 8;  // the number, and who sent it
volatile sig_atomic_t stopping = 0;
volatile sig_atomic_t held = 0;  // --hold: nothing is sent before SIGUSR1

struct Options {
  std::string socket, ifname, mode = "traffic";
  uint64_t frames = 0, expect = 0, rate = 1000, bytes = 64, seconds = 5, seed = 1, swaps = 0;
  uint64_t quiet_ms = 1000;
  uint32_t queues = 1;
  bool ready = false, kicks = true, calls = true;
};

struct Figures {
  uint64_t sent = 0, received = 0, repeated = 0, late = 0, damaged = 0, swaps = 0;
};

// Where frames go to and come from.
class End {
 public:
  virtual ~End() = default;
  virtual bool send(uint64_t number, const std::vector<uint8_t>& frame) = 0;
  virtual std::optional<std::vector<uint8_t>> receive() = 0;
  virtual void wait(int milliseconds) = 0;
};

class VmEnd final : public End {
 public:
  explicit VmEnd(const Options& options)
      : queues_(options.queues),
        vm_({.queue_pairs = options.queues, .kicks = options.kicks, .calls = options.calls}) {}
  FakeFrontEnd& vm() { return vm_; }

  bool send(uint64_t number, const std::vector<uint8_t>& frame) override {
    return vm_.send(static_cast<uint32_t>(number % queues_), frame);
  }
  std::optional<std::vector<uint8_t>> receive() override {
    for (uint32_t pair = 0; pair < queues_; ++pair) {
      if (auto packet = vm_.receive(pair)) return std::move(packet->bytes);
    }
    return std::nullopt;
  }
  void wait(int milliseconds) override {
    std::vector<pollfd> calls;
    for (uint32_t pair = 0; pair < queues_; ++pair) {
      if (vm_.driver(2 * pair).enable_interrupts()) return;
      calls.push_back({vm_.call(2 * pair).get(), POLLIN, 0});
    }
    ::poll(calls.data(), calls.size(), milliseconds);
    for (const pollfd& call : calls) {
      uint64_t value = 0;
      [[maybe_unused]] const ssize_t got = ::read(call.fd, &value, sizeof value);
    }
  }

 private:
  uint32_t queues_;
  FakeFrontEnd vm_;
};

class InterfaceEnd final : public End {
 public:
  explicit InterfaceEnd(const std::string& name)
      : socket_(::socket(AF_PACKET, SOCK_RAW | SOCK_CLOEXEC, 0 /* nothing before it is bound */)) {
    sockaddr_ll address{};
    address.sll_family = AF_PACKET;
    address.sll_protocol = htons(kEtherType);
    address.sll_ifindex = static_cast<int>(::if_nametoindex(name.c_str()));
    const int bytes = 16 << 20;
    const int one = 1;
    ::setsockopt(socket_.get(), SOL_SOCKET, SO_RCVBUFFORCE, &bytes, sizeof bytes);
    ::setsockopt(socket_.get(), SOL_PACKET, 23 /* PACKET_IGNORE_OUTGOING */, &one, sizeof one);
    ok_ = address.sll_ifindex != 0 &&
          ::bind(socket_.get(), reinterpret_cast<sockaddr*>(&address), sizeof address) == 0;
  }
  bool ok() const { return ok_; }
  bool send(uint64_t, const std::vector<uint8_t>& frame) override {
    return ::send(socket_.get(), frame.data(), frame.size(), MSG_DONTWAIT) ==
           static_cast<ssize_t>(frame.size());
  }
  std::optional<std::vector<uint8_t>> receive() override {
    std::vector<uint8_t> frame(2048);
    const ssize_t got = ::recv(socket_.get(), frame.data(), frame.size(), MSG_DONTWAIT);
    if (got <= 0) return std::nullopt;
    frame.resize(static_cast<size_t>(got));
    return frame;
  }
  void wait(int milliseconds) override {
    pollfd waiting{socket_.get(), POLLIN, 0};
    ::poll(&waiting, 1, milliseconds);
  }

 private:
  Fd socket_;
  bool ok_ = false;
};

std::vector<uint8_t> numbered_frame(uint64_t number, uint64_t bytes) {
  std::vector<uint8_t> frame(std::max<uint64_t>(bytes, kHeadBytes));
  const uint8_t addresses[] = {
      2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0xf0, 1, kEtherType >> 8, kEtherType & 0xff};
  std::memcpy(frame.data(), addresses, sizeof addresses);
  std::memcpy(frame.data() + kNumberOffset, &number, sizeof number);
  for (size_t i = kHeadBytes; i < frame.size(); ++i) frame[i] = static_cast<uint8_t>(number + i);
  return frame;
}

// Numbers come in order within a queue; with several, each number once is all that is promised.
class Judge {
 public:
  void see(const std::vector<uint8_t>& frame, Figures& figures) {
    if (frame.size() < kHeadBytes || frame[12] != kEtherType >> 8) return;  // of the host's own
    uint64_t number = 0;
    std::memcpy(&number, frame.data() + kNumberOffset, sizeof number);
    if (number > (1u << 30) || frame != numbered_frame(number, frame.size())) {
      ++figures.damaged;
      return;
    }
    if (number >= seen_.size()) seen_.resize(2 * number + 1024);
    if (seen_[number]) {
      ++figures.repeated;
      return;
    }
    seen_[number] = true;
    ++figures.received;
    if (number < highest_) ++figures.late;
    highest_ = std::max(highest_, number);
  }
  // The first number below the highest that never came.
  int64_t first_lost() const {
    for (uint64_t i = 0; i < highest_; ++i) {
      if (!seen_[i]) return static_cast<int64_t>(i);
    }
    return -1;
  }

 private:
  std::vector<bool> seen_;
  uint64_t highest_ = 0;
};

// Replaces the memory table, or restarts rings in a random order; frames that the back end has
// accepted must not be lost by it. To_guest rings stay up, or frames would rightly be dropped.
void swap(FakeFrontEnd& vm, uint32_t queues, std::mt19937_64& random, Figures& figures) {
  ++figures.swaps;
  if (random() % 2 == 0) {
    vm.share_memory();
    return;
  }
  std::vector<uint32_t> rings;
  for (uint32_t pair = 0; pair < queues; ++pair) rings.push_back(2 * pair + 1);
  std::shuffle(rings.begin(), rings.end(), random);
  for (const uint32_t ring : rings) vm.stop_ring(ring);
  std::shuffle(rings.begin(), rings.end(), random);
  for (const uint32_t ring : rings) {
    vm.start_ring(ring);
    vm.kick(ring);
  }
}

struct Traffic {
  End& end;
  VmEnd* vm;  // nullptr: behind an interface
  const Options& options;

  int run() {
    Figures figures;
    Judge judge;
    std::mt19937_64 random(options.seed);
    uint64_t begin_ns = monotonic_ns();
    uint64_t last_ns = begin_ns;
    while (true) {
      const uint64_t now_ns = monotonic_ns();
      if (held) begin_ns = now_ns;
      const bool all_sent = stopping || (options.frames != 0 && figures.sent >= options.frames);
      if (!all_sent && !held) {
        send_due(now_ns - begin_ns, figures);
        last_ns = now_ns;
        const uint64_t swaps_due =
            options.frames == 0 ? 0 : options.swaps * figures.sent / options.frames;
        if (vm != nullptr && figures.swaps < swaps_due)
          swap(vm->vm(), options.queues, random, figures);
      }
      bool any = false;
      while (auto frame = end.receive()) {
        judge.see(*frame, figures);
        any = true;
      }
      if (any) last_ns = monotonic_ns();
      if (all_sent && options.expect != 0 && figures.received >= options.expect) break;
      if (held) last_ns = now_ns;
      if (all_sent && now_ns > last_ns && now_ns - last_ns > options.quiet_ms * 1'000'000) break;
      if (!any) end.wait(1);
    }
    std::printf(
        "{\"sent\": %lu, \"received\": %lu, \"repeated\": %lu, \"late\": %lu, "
        "\"damaged\": %lu, \"first_lost\": %ld, \"swaps\": %lu}\n",
        figures.sent, figures.received, figures.repeated, figures.late, figures.damaged,
        judge.first_lost(), figures.swaps);
    return 0;
  }
  void send_due(uint64_t elapsed_ns, Figures& figures) {
    uint64_t due = elapsed_ns * options.rate / 1'000'000'000 + 1;
    if (options.frames != 0) due = std::min(due, options.frames);
    while (figures.sent < due) {
      if (!end.send(figures.sent, numbered_frame(figures.sent, options.bytes))) return;
      ++figures.sent;
    }
  }
};

int run_echo(VmEnd& end) {
  uint64_t count = 0;
  while (!stopping) {
    while (auto frame = end.receive()) {
      if (frame->size() >= 12)
        std::swap_ranges(frame->begin(), frame->begin() + 6, frame->begin() + 6);
      while (!stopping && !end.send(count, *frame)) ::usleep(100);
      ++count;
    }
    end.wait(20);
  }
  std::printf("{\"echoed\": %lu}\n", count);
  return 0;
}

// Sends for a while, cuts its memory off, and waits for the back end to end the connection.
int run_truncate(VmEnd& end, uint64_t seconds) {
  for (uint64_t i = 0; i < 100; ++i) {
    end.send(i, numbered_frame(i, 64));
    ::usleep(1000);
  }
  FakeFrontEnd& vm = end.vm();
  // The rings lie in the first region; the buffers of new frames in the second are gone.
  for (size_t region = 0; region < vm.guest().region_count(); ++region)
    vm.guest().truncate(region, 0);
  vm.kick(0);
  vm.kick(1);
  pollfd waiting{vm.channel().fd(), POLLIN | POLLHUP, 0};
  const bool ended = ::poll(&waiting, 1, static_cast<int>(seconds * 1000)) == 1;
  std::printf("{\"thrown_out\": %s}\n", ended ? "true" : "false");
  return 0;
}

int run(const Options& options) {
  std::setvbuf(stdout, nullptr, _IOLBF, 0);
  if (options.mode == "hostile") {
    const HostileFigures figures = attack(options.socket, options.queues, options.seed,
                                          monotonic_ns() + options.seconds * 1'000'000'000);
    std::printf("{\"rounds\": %lu, \"refused\": %lu, \"ring_rounds\": %lu}\n", figures.rounds,
                figures.refused, figures.ring_rounds);
    return 0;
  }
  if (!options.ifname.empty()) {
    InterfaceEnd end(options.ifname);
    if (!end.ok()) {
      std::fprintf(stderr, "fake_vm: cannot use interface %s\n", options.ifname.c_str());
      return 1;
    }
    if (options.ready) std::puts("ready");
    return Traffic{end, nullptr, options}.run();
  }
  VmEnd end(options);
  if (!end.vm().connect(options.socket)) {
    std::fprintf(stderr, "fake_vm: %s: nobody there, or set-up was refused\n",
                 options.socket.c_str());
    return 1;
  }
  if (options.ready) std::puts("ready");
  if (options.mode == "echo") return run_echo(end);
  if (options.mode == "truncate") return run_truncate(end, options.seconds);
  return Traffic{end, &end, options}.run();
}

bool parse(int argc, char** argv, Options& options) {
  enum { kSocket = 1, kIfname, kMode, kReady, kHold, kNoKick, kNoCall, kNumbers };
  struct {
    const char* name;
    uint64_t* value;
  } const numbers[] = {{"frames", &options.frames},     {"expect", &options.expect},
                       {"rate", &options.rate},         {"bytes", &options.bytes},
                       {"seconds", &options.seconds},   {"seed", &options.seed},
                       {"quiet-ms", &options.quiet_ms}, {"swaps", &options.swaps}};
  uint64_t queues = 1;
  std::vector<option> words = {{"socket", required_argument, nullptr, kSocket},
                               {"ifname", required_argument, nullptr, kIfname},
                               {"mode", required_argument, nullptr, kMode},
                               {"ready", no_argument, nullptr, kReady},
                               {"hold", no_argument, nullptr, kHold},
                               {"no-kick", no_argument, nullptr, kNoKick},
                               {"no-call", no_argument, nullptr, kNoCall}};
  int key = kNumbers;
  for (const auto& number : numbers)
    words.push_back({number.name, required_argument, nullptr, key++});
  words.push_back({"queues", required_argument, nullptr, key});
  words.push_back({});
  int got = 0;
  while ((got = ::getopt_long(argc, argv, "", words.data(), nullptr)) != -1) {
    if (got == kSocket)
      options.socket = optarg;
    else if (got == kIfname)
      options.ifname = optarg;
    else if (got == kMode)
      options.mode = optarg;
    else if (got == kReady)
      options.ready = true;
    else if (got == kHold)
      held = 1;
    else if (got == kNoKick)
      options.kicks = false;
    else if (got == kNoCall)
      options.calls = false;
    else if (got == key)
      queues = std::strtoull(optarg, nullptr, 10);
    else if (got >= kNumbers && got < key)
      *numbers[got - kNumbers].value = std::strtoull(optarg, nullptr, 10);
    else
      return false;
  }
  options.queues = static_cast<uint32_t>(std::clamp<uint64_t>(queues, 1, 128));
  return optind == argc && (options.socket.empty() != options.ifname.empty());
}

}  // namespace
}  // namespace sluice

int main(int argc, char** argv) {
  sluice::Options options;
  if (!sluice::parse(argc, argv, options)) {
    std::fprintf(stderr,
                 "usage: fake_vm --socket PATH | --ifname NAME [--mode traffic|echo|hostile|"
                 "truncate] [options]; see the head of fake_vm.cc\n");
    return 2;
  }
  ::signal(SIGTERM, [](int) { sluice::stopping = 1; });
  ::signal(SIGUSR1, [](int) { sluice::held = 0; });
  return sluice::run(options);
}
