// sluice pktgen: a generator that plugs into a back end as a VM does.
#include <unistd.h>

#include <cstdio>

#include "base/log.h"
#include "control/option_schema.h"
#include "control/pktgen.h"
#include "sluice_client.h"
#include "sluice_words.h"

namespace sluice {
namespace {

constexpr std::string_view kHelp =
    R"(sluice pktgen: send and receive numbered frames through any vhost-user back end, as a VM would

  sluice pktgen --socket /run/sluice/vm0.sock --mode txonly --seconds 10
  sluice pktgen --socket /run/sluice/vm1.sock --mode rxonly --count 10000000
  sluice pktgen --socket /run/sluice/vm1.sock --mode reflect &
  sluice pktgen --socket /run/sluice/vm0.sock --mode latency --seconds 10

  --socket PATH    the vhost-user socket; needed
  --mode MODE      txonly   sends
                   rxonly   receives: lost, out of order, twice, and how long under way
                   echo     sends and expects every frame back
                   reflect  sends every frame back
                   latency  a frame at a time: how long until it is back
  --size N         bytes of a frame, without its check sequence (default 64)
  --burst N        frames a kick (default 256; latency 1)
  --flows N        different source ports (default 1, and one a queue)
  --rate PPS       frames a second (default: as many as there is room for; latency 1000)
  --window N       echo, latency: frames under way at a time, a queue (default: the burst)
  --seconds S      how long (default: until Ctrl-C)
  --count N        how many frames; sends, or receives, no more
  --proto udp|tcp  what the frames look like (default udp)
  --src-mac MAC    --dst-mac MAC (default 02:00:00:00:00:01 to 02:00:00:00:00:02)
  --verify         look at the checksum of every frame that comes

  --socket-mode client|server   connect to the back end (default), or wait for it
  --packed         packed rings, and no others
  --tx MODE        napi (default) or inline: when sent buffers are taken back
  --queues N       queue pairs (default 1)
  --ring-size N    descriptors of each ring (default 256)
  --poll-us N      microseconds of looking for more work before it sleeps (default 50)
  --cpu N          where its worker runs
  --irq-cpu N      where a thread of its own takes the transmit interrupts
  --wait S         how long to wait for a back end (default 10)
  --json           the result as one JSON object; without the line each second

Frames carry their flow, number and time of making, so that any receiver of ours knows what is
missing. Loss is what a closed loop (echo) or two of ours with sluice between them show; a back end
that drops what it has no room for shows as lost here, too. It ends with 1 when the back end goes.
)";

struct Words {
  std::string socket, side = "client", mode, proto = "udp", tx = "napi", source_mac,
                      destination_mac, queues = "1", ring_size = "256";
  uint32_t frame_bytes = 64, burst = 0, flows = 1, window = 0, poll_us = kPollMicrosecondsDefault;
  uint64_t count = 0;
  double rate = 0, seconds = 0, wait_seconds = 10;
  int cpu = -1, interrupt_cpu = -1;
  bool packed = false, verify = false, as_json = false, wants_help = false;
};

// More frames than any run has time for; a negative number, which wraps around, is above it.
constexpr uint64_t kCountMax = 1'000'000'000'000'000;

void add_options(CLI::App& app, Words& words) {
  const std::pair<const char*, std::string*> texts[] = {{"--socket", &words.socket},
                                                        {"--socket-mode", &words.side},
                                                        {"--mode", &words.mode},
                                                        {"--proto", &words.proto},
                                                        {"--tx", &words.tx},
                                                        {"--src-mac", &words.source_mac},
                                                        {"--dst-mac", &words.destination_mac},
                                                        {"--queues", &words.queues},
                                                        {"--ring-size", &words.ring_size}};
  for (const auto& [name, text] : texts) app.add_option(name, *text);
  app.add_option("--size", words.frame_bytes);
  app.add_option("--burst", words.burst)->check(CLI::Range(1, 4096));
  app.add_option("--flows", words.flows)->check(CLI::Range(1u, kNumberedFlowsMax));
  app.add_option("--window", words.window)->check(CLI::Range(1, 65536));
  app.add_option("--poll-us", words.poll_us)->check(CLI::Range(0, 1'000'000));
  app.add_option("--count", words.count)->check(CLI::Range(uint64_t{1}, kCountMax));
  app.add_option("--rate", words.rate)->check(number_from(0.001, 1e9));
  app.add_option("--seconds", words.seconds)->check(number_from(0.001, 1e9));
  app.add_option("--wait", words.wait_seconds)->check(number_from(0, 1e9));
  app.add_option("--cpu", words.cpu)->check(CLI::Range(0, 1023));
  app.add_option("--irq-cpu", words.interrupt_cpu)->check(CLI::Range(0, 1023));
  app.add_flag("--packed", words.packed);
  app.add_flag("--verify", words.verify);
  app.add_flag("--json", words.as_json);
  app.add_flag("-h,--help", words.wants_help);
}

Result<Words> parse(const Arguments& arguments) {
  Words words;
  CLI::App app;
  app.set_help_flag();
  app.allow_extras();
  add_options(app, words);
  if (auto parsed = parse_words(app, arguments, "pktgen"); !parsed) return parsed.error();
  if (words.wants_help) return words;
  if (!app.remaining().empty()) return unknown_word(app.remaining().front(), "pktgen");
  if (words.socket.empty())
    return usage_failure("no back end: give --socket PATH of its vhost-user socket");
  if (words.mode.empty())
    return usage_failure("no mode: give --mode txonly, rxonly, echo, reflect or latency");
  return words;
}

Result<GeneratorMode> mode_of(const std::string& text) {
  for (const GeneratorMode mode :
       {GeneratorMode::txonly, GeneratorMode::rxonly, GeneratorMode::echo, GeneratorMode::reflect,
        GeneratorMode::latency}) {
    if (text == mode_name(mode)) return mode;
  }
  return usage_failure("--mode '{}' is none of txonly, rxonly, echo, reflect, latency",
                       printable(text));
}

// A value of that key of `sluice run`, refused under the name that the option has here.
Result<OptionValue> value_of(const char* list, const char* key, const std::string& text,
                             const char* option) {
  return parse_option_value(*find_key(find_list_schema(list)->keys, key), text,
                            fmt::format("{}: ", option));
}

// The keys of a nic have their ranges and sentences in the schema of `sluice run`.
Result<NicOptions> nic_of(const Words& words) {
  struct Value {
    const char *option, *key;
    std::string text;
  };
  const Value values[] = {{"--socket", "socket", words.socket},
                          {"--socket-mode", "mode", words.side},
                          {"--queues", "queues", words.queues},
                          {"--ring-size", "ring-size", words.ring_size},
                          {"--packed", "packed", words.packed ? "on" : "off"},
                          {"--tx", "tx", words.tx}};
  std::string list = "nic0,offload=off";
  for (const Value& value : values) {
    if (auto parsed = value_of("nic", value.key, value.text, value.option); !parsed)
      return parsed.error();
    list += fmt::format(",{}={}", value.key, in_list(value.text));
  }
  RunOptions options;
  if (auto parsed = parse_list_option("nic", list, options); !parsed)
    return in_own_words(parsed.error());
  return options.nics.front();
}

Result<std::array<uint8_t, 6>> mac_of(const std::string& text, const char* option) {
  const auto value = value_of("tap", "mac", text, option);
  if (!value) return value.error();
  return value->mac;
}

Result<NumberedFrameSpec> frame_of(const Words& words) {
  NumberedFrameSpec frame;
  if (words.proto != "udp" && words.proto != "tcp")
    return usage_failure("--proto '{}' is neither udp nor tcp", printable(words.proto));
  frame.tcp = words.proto == "tcp";
  const size_t smallest = frame.tcp ? kNumberedTcpBytesMin : kNumberedUdpBytesMin;
  if (words.frame_bytes < smallest || words.frame_bytes > kFrameDataBytesMax)
    return usage_failure(
        "--size {}: give {} to {} for {} (headers, and 18 bytes of number and time)",
        words.frame_bytes, smallest, kFrameDataBytesMax, words.proto);
  frame.frame_bytes = words.frame_bytes;
  if (!words.source_mac.empty()) {
    auto mac = mac_of(words.source_mac, "--src-mac");
    if (!mac) return mac.error();
    frame.source_mac = *mac;
  }
  if (!words.destination_mac.empty()) {
    auto mac = mac_of(words.destination_mac, "--dst-mac");
    if (!mac) return mac.error();
    frame.destination_mac = *mac;
  }
  return frame;
}

Result<PktgenOptions> options_of(const Words& words) {
  auto mode = mode_of(words.mode);
  if (!mode) return mode.error();
  auto nic = nic_of(words);
  if (!nic) return nic.error();
  auto frame = frame_of(words);
  if (!frame) return frame.error();
  const bool is_latency = *mode == GeneratorMode::latency;
  PktgenOptions options;
  options.nic = std::move(*nic);
  options.nic.interrupt_cpu = words.interrupt_cpu;
  options.generator.mode = *mode;
  options.generator.queues = options.nic.queue_pairs;
  options.generator.frame = *frame;
  options.generator.burst_frames = words.burst > 0 ? words.burst : is_latency ? 1 : 256;
  options.generator.flows = words.flows;
  options.generator.rate_fps = words.rate > 0 ? words.rate : is_latency ? 1000 : 0;
  options.generator.frames_max = words.count;
  options.generator.window_frames =
      words.window > 0 ? words.window : options.generator.burst_frames;
  options.generator.verify = words.verify;
  options.seconds = words.seconds;
  options.wait_seconds = words.wait_seconds;
  options.cpu = words.cpu;
  options.poll_us = words.poll_us;
  return options;
}

}  // namespace

int cmd_pktgen(const Arguments& arguments) {
  const Result<Words> words = parse(arguments);
  if (!words) return report_failure("pktgen", words.error());
  if (words->wants_help) {
    fmt::print("{}", kHelp);
    return kExitFine;
  }
  const Result<PktgenOptions> options = options_of(*words);
  if (!options) return report_failure("pktgen", options.error());
  set_log_level(LogLevel::warning);
  const bool as_json = words->as_json;
  const auto report = run_pktgen(*options, [as_json](std::string_view line) {
    if (!as_json) fmt::print(stderr, "{}\n", line);
  });
  if (!report) return report_failure("pktgen", report.error());
  if (as_json) {
    fmt::print("{}\n", pktgen_json(*report).dump(2));
  } else {
    fmt::print("{}", pktgen_table(*report, output_has_colour()));
  }
  if (report->failure.empty()) return kExitFine;
  return report_failure("pktgen", fail("{}", report->failure));
}

}  // namespace sluice
