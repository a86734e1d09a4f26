// The programs of an object file, in the kernel and in our engines: the same packets, the same
// verdicts, bytes and maps?
//
//   xdp_differential [--packets N] [--seed N] [--ignore-map NAME]... [--program NAME] OBJECT
//
// One JSON line a program: how many packets ended how, or why not. Ends with 1 if something
// differs, 2 for wrong words, 77 if the kernel lets nobody load programs here; a program that the
// kernel or our own check refuses has "refused" and changes nothing.
#include <getopt.h>
#include <linux/bpf.h>
#include <sched.h>

#include <cstdio>
#include <cstdlib>
#include <map>
#include <nlohmann/json.hpp>

#include "testing/packet_builder.h"
#include "testing/xdp_oracle_object.h"

namespace sluice {
namespace {

struct Options {
  uint64_t packets = 500;
  uint64_t seed = 1;
  std::string object;
  std::string program;  // empty: all
  OracleOptions oracle;
};

// Well-formed packets of a few hosts and ports, and what can be made of them by breaking them.
class PacketSource {
 public:
  explicit PacketSource(uint64_t seed) : random_(seed) {}

  std::vector<uint8_t> next() {
    std::vector<uint8_t> bytes = well_formed();
    const uint64_t choice = random_() % 8;
    if (choice == 0) bytes.resize(std::max<size_t>(14, random_() % (bytes.size() + 1)));
    // Lengths, versions and types are in the first bytes.
    for (uint64_t i = choice < 4 ? 1 + random_() % 3 : 0; i > 0; --i)
      bytes[12 + random_() % std::min<size_t>(bytes.size() - 12, 60)] =
          static_cast<uint8_t>(random_());
    if (choice == 7 && random_() % 4 == 0)
      for (uint8_t& byte : bytes) byte = static_cast<uint8_t>(random_());
    return bytes;
  }

 private:
  uint16_t port() {
    static constexpr uint16_t kPorts[] = {0, 7, 53, 80, 443, 1234, 4242, 8080, 65535};
    return kPorts[random_() % std::size(kPorts)];
  }
  uint16_t tag() {
    static constexpr uint16_t kTags[] = {0, 1, 42, 4011, 0x8000 | 4011};
    return random_() % 2 == 0 ? kTags[random_() % std::size(kTags)]
                              : static_cast<uint16_t>(random_());
  }
  uint8_t host() { return static_cast<uint8_t>(random_() % 6); }

  // As ping sends them, and as they come back.
  std::vector<uint8_t> echo() {
    BuiltPacket built = packet().eth().ipv4().udp(port(), port()).payload(56).build();
    built.bytes[built.l3_offset + 9] = 1;
    built.bytes[built.l4_offset] = random_() % 2 == 0 ? 8 : 0;
    return built.bytes;
  }

  std::vector<uint8_t> well_formed() {
    if (random_() % 16 == 0) return echo();
    PacketBuilder builder = packet().eth();
    for (uint64_t tags = random_() % 8; tags < 3; ++tags)
      builder.vlan(tag(), random_() % 2 == 0 ? 0x8100 : 0x88a8);
    if (random_() % 3 == 0) {
      Ipv6Fields fields;
      fields.source[15] = host();
      fields.destination[15] = host();
      fields.extension_count = static_cast<uint8_t>(random_() % 4 == 0 ? random_() % 4 : 0);
      builder.ipv6(fields);
    } else {
      Ipv4Fields fields;
      fields.source[3] = host();
      fields.destination[3] = host();
      fields.option_bytes = static_cast<uint8_t>(random_() % 5 == 0 ? 4 * (random_() % 11) : 0);
      if (random_() % 8 == 0) fields.fragment = static_cast<uint16_t>(random_());
      builder.ipv4(fields);
    }
    if (random_() % 2 == 0)
      builder.udp(port(), port());
    else
      builder.tcp(port(), port(), {.flags = static_cast<uint8_t>(random_())});
    BuiltPacket built = builder.payload(random_() % (random_() % 8 == 0 ? 1400 : 64)).build();
    // Hosts differ in the link, too; some packets carry ICMP or a tunnel.
    built.bytes[5] = host();
    built.bytes[11] = host();
    static constexpr uint8_t kProtocols[] = {1, 4, 41, 47, 58};
    if (random_() % 6 == 0 && built.l3_offset + 20 < built.bytes.size()) {
      const bool is_ipv6 = built.bytes[built.l3_offset] >> 4 == 6;
      built.bytes[built.l3_offset + (is_ipv6 ? 6 : 9)] =
          kProtocols[random_() % std::size(kProtocols)];
      if (random_() % 2 == 0) built.bytes[built.l4_offset] = random_() % 2 == 0 ? 8 : 0;
    }
    return built.bytes;
  }

  std::mt19937_64 random_;
};

std::string hex_of(const std::vector<uint8_t>& bytes) {
  return fmt::format("{:02x}", fmt::join(bytes, ""));
}

// False: something differs.
bool compare_program(const Options& options, const std::string& program) {
  nlohmann::json line = {{"program", program}};
  auto object = OracleObject::load(options.object, program, options.oracle);
  std::string difference;
  if (!object) {
    line["refused"] = object.error().text;
  } else {
    PacketSource source(options.seed);
    std::mt19937_64 random(options.seed);
    std::vector<std::vector<uint8_t>> packets;
    for (int i = 0; i < 200; ++i) packets.push_back(source.next());
    Result<void> same = (*object)->fill(packets, random);
    std::map<std::string, uint64_t> verdicts;
    for (uint64_t i = 0; i < options.packets && same; ++i) {
      const std::vector<uint8_t> packet = source.next();
      const Result<OracleOutcome> outcome = (*object)->compare(packet);
      if (!outcome) {
        same = fail("packet {} {}: {}", i, hex_of(packet), outcome.error().text);
        break;
      }
      ++verdicts[outcome->returned <= XDP_REDIRECT ? fmt::format("{}", outcome->returned)
                                                   : "other"];
      if (i % 1000 == 999 || i + 1 == options.packets) same = (*object)->compare_maps();
    }
    line["packets"] = options.packets;
    line["verdicts"] = verdicts;
    line["maps"] = (*object)->map_count();
    line["entries"] = (*object)->entries_filled();
    if (!same) line["differs"] = difference = same.error().text;
  }
  std::printf("%s\n", line.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace).c_str());
  return difference.empty();
}

bool parse(int argc, char** argv, Options& options) {
  static const option words[] = {{"packets", required_argument, nullptr, 'n'},
                                 {"seed", required_argument, nullptr, 's'},
                                 {"ignore-map", required_argument, nullptr, 'i'},
                                 {"program", required_argument, nullptr, 'p'},
                                 {nullptr, 0, nullptr, 0}};
  int got = 0;
  while ((got = ::getopt_long(argc, argv, "", words, nullptr)) != -1) {
    switch (got) {
      case 'n':
        options.packets = std::strtoull(optarg, nullptr, 10);
        break;
      case 's':
        options.seed = std::strtoull(optarg, nullptr, 10);
        break;
      case 'i':
        options.oracle.ignored_maps.insert(optarg);
        break;
      case 'p':
        options.program = optarg;
        break;
      default:
        return false;
    }
  }
  if (optind + 1 != argc) return false;
  options.object = argv[optind];
  return true;
}

int compare_all(const Options& options) {
  if (!kernel_takes_programs()) {
    std::fprintf(stderr, "the kernel lets nobody load programs here\n");
    return 77;
  }
  // Copy 0 of a per-CPU value is ours.
  cpu_set_t first;
  CPU_ZERO(&first);
  CPU_SET(0, &first);
  if (::sched_setaffinity(0, sizeof first, &first) != 0) {
    std::fprintf(stderr, "processor 0 is not ours to run on\n");
    return 77;
  }
  std::vector<std::string> programs = {options.program};
  if (options.program.empty()) {
    auto found = programs_in(options.object);
    if (!found) {
      std::fprintf(stderr, "%s\n", found.error().text.c_str());
      return 2;
    }
    programs = std::move(*found);
  }
  bool is_same = true;
  for (const std::string& program : programs) is_same &= compare_program(options, program);
  return is_same ? 0 : 1;
}

}  // namespace
}  // namespace sluice

int main(int argc, char** argv) {
  sluice::Options options;
  if (!sluice::parse(argc, argv, options)) {
    std::fprintf(stderr,
                 "usage: %s [--packets N] [--seed N] [--ignore-map NAME]... [--program NAME] "
                 "OBJECT\n",
                 argv[0]);
    return 2;
  }
  return sluice::compare_all(options);
}
