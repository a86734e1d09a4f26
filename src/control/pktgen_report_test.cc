// What a run of pktgen says of itself, from figures that are known.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sstream>

#include "control/pktgen.h"

namespace sluice {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;
using ::testing::Not;

// Every figure has a value of its own, so that no two can be taken for each other.
PktgenReport known_report(GeneratorMode mode) {
  PktgenReport report;
  report.options.generator.mode = mode;
  report.options.generator.frame.frame_bytes = 125;
  report.options.generator.burst_frames = 32;
  report.options.nic.packed = true;
  report.negotiated = {"version_1", "ring_packed"};
  report.seconds = 2;
  report.frames_dropped = 101;
  report.frames_unused = 102;
  report.kicks = 103;
  report.kicks_suppressed = 104;
  report.interrupts = 105;
  report.receive_interrupts = 106;
  report.cpu_ns = 9'000'000;
  GeneratorFigures& figures = report.figures;
  figures.frames_sent = 4'000'000;
  figures.frames_received = 2'000'000;
  figures.frames_foreign = 107;
  figures.frames_bad_checksum = 108;
  figures.receive_ns_first = 1'000'000'000;
  figures.receive_ns_last = 1'500'000'000;
  figures.numbers = {.received = 1'999'785,
                     .lost = 109,
                     .reordered = 110,
                     .duplicates = 111,
                     .too_late = 112,
                     .bad_flow = 113};
  for (uint64_t i = 1; i <= 1000; ++i) figures.latency_ns.record(i * 1000);
  return report;
}

TEST(PktgenReport, JsonHasEveryFigureUnderItsName) {
  const json document = pktgen_json(known_report(GeneratorMode::rxonly));
  const json expected = {
      {"mode", "rxonly"},
      {"format", "packed"},
      {"frame_bytes", 125},
      {"burst_frames", 32},
      {"negotiated", {"version_1", "ring_packed"}},
      {"seconds", 2.0},
      {"frames_sent", 4'000'000},
      {"frames_sent_per_s", 2e6},
      {"frames_dropped", 101},
      {"frames_unused", 102},
      {"frames_received", 2'000'000},
      {"frames_received_per_s", 4e6},  // over the half second in which they came
      {"frames_lost", 109},
      {"frames_reordered", 110},
      {"frames_duplicate", 111},
      {"frames_too_late", 112},
      {"frames_foreign", 107 + 113},
      {"frames_bad_checksum", 108},
      {"kicks", 103},
      {"kicks_suppressed", 104},
      {"interrupts", 105},
      {"receive_interrupts", 106},
      {"cpu_ns_per_frame", 1.5},
  };
  json without_latency = document;
  without_latency.erase("latency_ns");
  EXPECT_EQ(without_latency, expected);
  EXPECT_EQ(json::parse(document.dump()), document);
}

TEST(PktgenReport, LatencyIsAHistogramWithinOnePercent) {
  const json latency = pktgen_json(known_report(GeneratorMode::latency))["latency_ns"];
  EXPECT_EQ(latency["count"], 1000);
  EXPECT_EQ(latency["min"], 1000);
  EXPECT_EQ(latency["max"], 1'000'000);
  for (const auto& [name, value] :
       {std::pair<const char*, double>{"p50", 500'000}, {"p99", 990'000}, {"p999", 999'000}}) {
    EXPECT_GE(latency[name].get<double>(), value) << name;
    EXPECT_LE(latency[name].get<double>(), value * 1.01) << name;
  }
  EXPECT_EQ(latency.size(), 6u);
}

TEST(PktgenReport, AFailureIsInTheJsonOnlyIfThereWasOne) {
  PktgenReport report = known_report(GeneratorMode::txonly);
  EXPECT_FALSE(pktgen_json(report).contains("failure"));
  report.failure = "the back end went away: it closed its socket";
  EXPECT_EQ(pktgen_json(report)["failure"], report.failure);
}

TEST(PktgenReport, NothingIsDividedByNothing) {
  const PktgenReport empty;
  const json document = pktgen_json(empty);
  for (const char* key : {"frames_sent_per_s", "frames_received_per_s", "cpu_ns_per_frame"})
    EXPECT_EQ(document[key], 0.0) << key;
  EXPECT_EQ(document["format"], "split");
  EXPECT_EQ(document["latency_ns"]["max"], 0);
  EXPECT_THAT(pktgen_table(empty, false), HasSubstr("0.0 ns of CPU time a frame"));
}

TEST(PktgenReport, InAClosedLoopLostIsWhatDidNotComeBack) {
  for (const GeneratorMode mode : {GeneratorMode::echo, GeneratorMode::latency}) {
    PktgenReport report = known_report(mode);
    const NumberCounts& numbers = report.figures.numbers;
    EXPECT_EQ(frames_lost(report), 4'000'000 - (1'999'785 - 111 - 112 - 113));
    report.figures.frames_sent = numbers.received - 111 - 112 - 113;
    EXPECT_EQ(frames_lost(report), 0u);
    report.figures.frames_sent = 5;  // more came than were sent: another generator's
    EXPECT_EQ(frames_lost(report), 0u);
  }
  // Elsewhere the last ones of a flow cannot be missed, only the numbers between.
  EXPECT_EQ(frames_lost(known_report(GeneratorMode::rxonly)), 109u);
}

TEST(PktgenReport, EveryModeHasItsName) {
  for (const auto& [mode, name] :
       {std::pair{GeneratorMode::txonly, "txonly"}, std::pair{GeneratorMode::rxonly, "rxonly"},
        std::pair{GeneratorMode::echo, "echo"}, std::pair{GeneratorMode::reflect, "reflect"},
        std::pair{GeneratorMode::latency, "latency"}}) {
    EXPECT_EQ(mode_name(mode), name);
    EXPECT_EQ(pktgen_json(known_report(mode))["mode"], name);
  }
}

// The row of a table that begins with these words, its columns separated by one space.
std::string row_of(const PktgenReport& report, const std::string& name) {
  std::istringstream lines(pktgen_table(report, false));
  for (std::string line; std::getline(lines, line);) {
    if (!line.starts_with(name + "  ") && !line.starts_with(name + " ")) continue;
    std::string columns;
    std::istringstream words(line);
    for (std::string word; words >> word;) columns += (columns.empty() ? "" : " ") + word;
    return columns;
  }
  return "";
}

TEST(PktgenReport, TheTableHasRatesAndEveryCountThatIsNotZero) {
  PktgenReport report = known_report(GeneratorMode::echo);
  report.options.generator.verify = true;
  EXPECT_EQ(row_of(report, "sent"), "sent 4000000 2.000 2.000");  // 125 bytes: 1000 bits a frame
  EXPECT_EQ(row_of(report, "received"), "received 2000000 4.000 4.000");
  EXPECT_EQ(row_of(report, "lost"), fmt::format("lost {}", frames_lost(report)));
  EXPECT_EQ(row_of(report, "reordered"), "reordered 110");
  EXPECT_EQ(row_of(report, "duplicate"), "duplicate 111");
  EXPECT_EQ(row_of(report, "too late"), "too late 112");
  EXPECT_EQ(row_of(report, "not ours"), "not ours 220");
  EXPECT_EQ(row_of(report, "bad checksum"), "bad checksum 108");
  EXPECT_EQ(row_of(report, "not taken"), "not taken 101");
  EXPECT_EQ(row_of(report, "not used by the device"), "not used by the device 102");
  EXPECT_THAT(pktgen_table(report, false),
              HasSubstr("1.5 ns of CPU time a frame, 103 kicks, 211 interrupts (106 of receiving)\n"
                        "there and back: p50 50"));
}

TEST(PktgenReport, TheTableLeavesOutWhatDidNotHappen) {
  PktgenReport report = known_report(GeneratorMode::rxonly);
  EXPECT_EQ(row_of(report, "sent"), "");
  EXPECT_EQ(row_of(report, "bad checksum"), "") << "nobody looked";
  EXPECT_THAT(pktgen_table(report, false), HasSubstr("under way: p50 "));

  report = PktgenReport();
  report.figures.frames_sent = 3;
  report.seconds = 1;
  EXPECT_EQ(row_of(report, "sent"), "sent 3 0.000 0.000");
  for (const char* name : {"received", "lost", "reordered", "duplicate", "too late", "not ours",
                           "bad checksum", "not taken", "not used"})
    EXPECT_EQ(row_of(report, name), "") << name;
  EXPECT_THAT(pktgen_table(report, false), Not(HasSubstr("p50")));
}

TEST(PktgenReport, AnEchoThatGotNothingBackSaysThatAllIsLost) {
  PktgenReport report;
  report.options.generator.mode = GeneratorMode::echo;
  report.figures.frames_sent = 77;
  EXPECT_EQ(row_of(report, "lost"), "lost 77");
  EXPECT_EQ(row_of(report, "reordered"), "reordered 0");
}

TEST(PktgenReport, ColourIsOnlyForWhoWantsIt) {
  const PktgenReport report = known_report(GeneratorMode::echo);
  EXPECT_THAT(pktgen_table(report, false), Not(HasSubstr("\033")));
  EXPECT_THAT(pktgen_table(report, true), HasSubstr("\033"));
}

}  // namespace
}  // namespace sluice
