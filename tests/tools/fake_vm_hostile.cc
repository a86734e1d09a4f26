#include "fake_vm_hostile.h"

#include <fcntl.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <random>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "testing/fake_front_end.h"

namespace sluice {
namespace {

class Attacker {
 public:
  Attacker(const std::string& path, uint32_t queue_pairs, uint64_t seed)
      : path_(path), queue_pairs_(queue_pairs), random_(seed) {}

  void round(HostileFigures& figures) {
    ++figures.rounds;
    if (below(3) == 0) {
      send_nonsense();
      return;
    }
    FakeFrontEndOptions options;
    options.queue_pairs = 1 + static_cast<uint32_t>(below(queue_pairs_));
    options.control_queue = below(4) == 0;
    options.wanted_features = below(2) ? ~uint64_t{0} : random_();
    options.ring_size = 1u << (1 + below(8));
    options.buffer_bytes = static_cast<uint32_t>(below(2) ? 2048 : 1 + below(200));
    options.kicks = below(8) != 0;
    options.calls = below(8) != 0;
    options.memory_bytes = 8 << 20;
    FakeFrontEnd vm(options);
    if (!vm.connect(path_)) {
      ++figures.refused;
      return;
    }
    ++figures.ring_rounds;
    misuse_rings(vm);
    part(vm);
  }

 private:
  uint64_t below(uint64_t bound) { return random_() % bound; }

  // --- Messages ------------------------------------------------------------------------------

  std::vector<Fd> strange_descriptors() {
    std::vector<Fd> fds;
    for (uint64_t i = below(4); i > 0; --i) {
      switch (below(4)) {
        case 0:
          fds.push_back(Fd(::eventfd(0, EFD_CLOEXEC)));
          break;
        case 1:
          fds.push_back(Fd(::open("/dev/null", O_RDWR | O_CLOEXEC)));
          break;
        case 2:
          fds.push_back(Fd(::open("/tmp", O_RDONLY | O_DIRECTORY | O_CLOEXEC)));
          break;
        default:
          fds.push_back(Fd(::memfd_create("small", MFD_CLOEXEC)));
          break;
      }
    }
    return fds;
  }

  std::vector<uint8_t> payload() {
    static constexpr size_t kSizes[] = {0, 4, 8, 8, 12, 40, 40, 268, 4096};
    std::vector<uint8_t> bytes(kSizes[below(std::size(kSizes))]);
    for (uint8_t& byte : bytes) byte = static_cast<uint8_t>(below(4) ? 0 : random_());
    if (!bytes.empty()) bytes[0] = static_cast<uint8_t>(below(6));  // often a ring that exists
    return bytes;
  }

  // Some messages that mean nothing, some half set-ups, and an end in the middle of one.
  void send_nonsense() {
    FrontEndChannel channel(FrontEndChannel::connect(path_));
    if (below(2)) channel.negotiate(random_());
    for (uint64_t i = below(20); i > 0; --i) {
      const auto fds = strange_descriptors();
      std::vector<int> numbers;
      for (const Fd& fd : fds) numbers.push_back(fd.get());
      const auto request = static_cast<uint32_t>(below(20) ? below(48) : random_());
      const auto flags = static_cast<uint32_t>(below(10) ? 1 | (below(2) << 3) : random_());
      if (!channel.send(request, flags, payload(), numbers)) return;
    }
    if (below(2)) {
      const uint8_t part[] = {1, 0, 0, 0, 1, 0, 0};
      [[maybe_unused]] const ssize_t sent =
          ::send(channel.fd(), part, 1 + below(sizeof part), MSG_NOSIGNAL | MSG_DONTWAIT);
    }
  }

  // --- Rings ---------------------------------------------------------------------------------

  ChainBuilder strange_chain() {
    ChainBuilder chain;
    for (uint64_t pieces = 1 + below(5); pieces > 0; --pieces) {
      const auto bytes = static_cast<uint32_t>(below(3) ? below(200) : below(70'000));
      switch (below(12)) {
        case 0:
          chain.writable(bytes);
          break;
        case 1:
          chain.readable_at(random_(), bytes);
          break;
        case 2:
          chain.writable_at(random_() >> below(64), static_cast<uint32_t>(random_()));
          break;
        case 3:
          chain.readable_at(below(8 << 20), static_cast<uint32_t>(below(9 << 20)));
          break;
        default:
          chain.readable(bytes % 3000);
          break;
      }
      if (below(10) == 0) chain.indirect_from_here();
    }
    return chain;
  }

  void scribble(FakeDriver& driver) {
    switch (below(8)) {
      case 0:
        driver.raw_available_index(static_cast<uint16_t>(random_()));
        break;
      case 1:
        driver.raw_offer(static_cast<uint16_t>(below(4) ? below(driver.size()) : random_()));
        break;
      case 2:
        driver.scribble_used(static_cast<uint8_t>(random_()));
        break;
      case 3:
        driver.raw_used_event(static_cast<uint16_t>(random_()));
        driver.raw_avail_event(static_cast<uint16_t>(random_()));
        break;
      case 4:
        driver.raw_available_flags(static_cast<uint16_t>(random_()));
        break;
      default:
        driver.raw_descriptor(
            static_cast<uint32_t>(below(driver.size())),
            {below(2) ? below(8 << 20) : random_(),
             static_cast<uint32_t>(below(2) ? below(3000) : random_()),
             static_cast<uint16_t>(below(8)), static_cast<uint16_t>(below(2 * driver.size()))});
        driver.raw_offer(static_cast<uint16_t>(below(driver.size())));
        break;
    }
  }

  void misuse_rings(FakeFrontEnd& vm) {
    std::atomic<bool> flipping{below(3) == 0};
    const uint64_t flip_seed = random_();
    FakeDriver& victim = vm.driver(static_cast<uint32_t>(below(vm.ring_count())));
    uint8_t* words = vm.guest().at(victim.descriptors_address(), 16 * victim.size());
    std::thread flipper;
    if (flipping.load()) {
      // Descriptors change while they are read.
      flipper = std::thread([&flipping, flip_seed, words, bytes = 16 * victim.size()] {
        std::mt19937_64 random(flip_seed);
        while (flipping.load(std::memory_order_relaxed)) {
          auto* word = reinterpret_cast<uint16_t*>(words + random() % (bytes / 2) * 2);
          __builtin_memset(word, static_cast<int>(random()), 2);
        }
      });
    }
    for (uint64_t steps = 1 + below(60); steps > 0; --steps) {
      const auto index = static_cast<uint32_t>(below(vm.ring_count()));
      if (below(3)) {
        vm.driver(index).offer(strange_chain());
      } else {
        scribble(vm.driver(index));
      }
      vm.kick(index);
      if (below(10) == 0) ::usleep(static_cast<useconds_t>(below(1000)));
      if (below(30) == 0) change_state(vm, index);
    }
    flipping.store(false);
    if (flipper.joinable()) flipper.join();
  }

  void change_state(FakeFrontEnd& vm, uint32_t index) {
    switch (below(6)) {
      case 0:
        vm.stop_ring(index);
        break;
      case 1:
        vm.start_ring(index);
        break;
      case 2:
        vm.enable_ring(index, below(2));
        break;
      case 3:
        vm.share_memory();
        break;
      case 4:
        vm.channel().set_memory({}, {});
        break;
      default:
        vm.channel().set_u64(Request::set_features, random_());
        break;
    }
  }

  // How it ends: without a word, with a cut-off memory, or in the middle of a change.
  void part(FakeFrontEnd& vm) {
    if (below(4) == 0) {
      vm.guest().truncate(below(2), below(2) ? 0 : 4096);
      for (uint32_t i = 0; i < vm.ring_count(); ++i) vm.kick(i);
      ::usleep(static_cast<useconds_t>(below(5000)));
    }
    if (below(4) == 0) vm.stop_ring(static_cast<uint32_t>(below(vm.ring_count())));
    vm.channel().close();
  }

  std::string path_;
  uint32_t queue_pairs_;
  std::mt19937_64 random_;
};

}  // namespace

HostileFigures attack(const std::string& path, uint32_t queue_pairs, uint64_t seed,
                      uint64_t deadline_ns) {
  Attacker attacker(path, queue_pairs, seed);
  HostileFigures figures;
  while (monotonic_ns() < deadline_ns) attacker.round(figures);
  return figures;
}

}  // namespace sluice
