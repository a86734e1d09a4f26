// sluice bench: runs named benchmarks and reports them.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sched.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <cstdio>
#include <fstream>

#include "control/option_schema.h"
#include "measure/benchmark.h"
#include "sluice_client.h"
#include "sluice_words.h"

namespace sluice {
namespace {

constexpr std::string_view kHelp =
    R"(sluice bench: measure, on this machine, what a choice is worth

  sluice bench --list                  what there is, and which public document it repeats
  sluice bench                         all of them (minutes)
  sluice bench s4-napi-tx rings        some of them
  sluice bench rings --rounds 9 --json

  --rounds N       alternating rounds, before and after in each (default 5)
  --seconds S      of each half (default 3)
  --json           the reports as one JSON object, each round's figures in it
  --report FILE    also write a page with pictures (HTML)
  --list           names, and nothing is run

Two halves alternate in one run, and what counts is the ratio of their medians; absolute figures of a
shared machine mean little. Keep the machine quiet. Traffic stays on sockets of the benchmark's own.
)";

struct Wanted {
  std::vector<std::string> names;
  BenchOptions bench;
  bool as_json = false;
  bool list = false;
  bool wants_help = false;
  std::string report_file;
};

Result<Wanted> parse(const Arguments& arguments) {
  Wanted wanted;
  CLI::App app;
  app.set_help_flag();
  app.allow_extras();
  app.add_option("--rounds", wanted.bench.rounds)->check(CLI::Range(1, 1000));
  app.add_option("--seconds", wanted.bench.seconds)->check(number_from(0.1, 3600));
  app.add_option("--report", wanted.report_file);
  app.add_flag("--json", wanted.as_json);
  app.add_flag("--list", wanted.list);
  app.add_flag("-h,--help", wanted.wants_help);
  if (auto parsed = parse_words(app, arguments, "bench"); !parsed) return parsed.error();
  for (const std::string& word : app.remaining()) {
    if (word.starts_with("-")) return unknown_word(word, "bench");
    if (find_benchmark(word) == nullptr) {
      std::vector<std::string_view> names;
      for (const Benchmark& benchmark : all_benchmarks()) names.push_back(benchmark.name);
      return usage_failure("no benchmark '{}'{} (there are: {})", printable(word),
                           did_you_mean(word, names), fmt::join(names, ", "));
    }
    wanted.names.push_back(word);
  }
  if (wanted.names.empty()) {
    for (const Benchmark& benchmark : all_benchmarks()) wanted.names.emplace_back(benchmark.name);
  }
  return wanted;
}

int usable_cpus() {
  cpu_set_t cpus;
  CPU_ZERO(&cpus);
  return ::sched_getaffinity(0, sizeof cpus, &cpus) == 0 ? CPU_COUNT(&cpus) : 1;
}

std::string machine_text(int cpus) {
  utsname kernel{};
  ::uname(&kernel);
  std::string model = "unknown processor";
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    if (!line.starts_with("model name")) continue;
    model = line.substr(line.find(':') + 2);
    break;
  }
  return fmt::format("{}, {} CPUs, Linux {}, sluice {}", model, cpus, kernel.release,
                     SLUICE_VERSION);
}

void print_list() {
  std::vector<std::vector<std::string>> rows = {{"NAME", "WHAT", "DOCUMENT"}};
  for (const Benchmark& benchmark : all_benchmarks())
    rows.push_back({std::string(benchmark.name), std::string(benchmark.sentence),
                    std::string(benchmark.document)});
  fmt::print("{}", table_text(rows, {false, false, false}, output_has_colour()));
}

}  // namespace

int cmd_bench(const Arguments& arguments) {
  auto wanted = parse(arguments);
  if (!wanted) return report_failure("bench", wanted.error());
  if (wanted->wants_help) {
    fmt::print("{}", kHelp);
    return kExitFine;
  }
  if (wanted->list) {
    print_list();
    return kExitFine;
  }
  wanted->bench.cpu_count = usable_cpus();
  wanted->bench.progress = [](std::string_view line) { fmt::print(stderr, "{}\n", line); };
  const std::string machine = machine_text(wanted->bench.cpu_count);
  std::vector<Report> reports;
  for (const std::string& name : wanted->names) {
    auto report = find_benchmark(name)->run(wanted->bench);
    if (!report) return report_failure("bench", fail("{}: {}", name, report.error().text));
    if (!wanted->as_json) fmt::print("{}\n", report_text(*report, output_has_colour()));
    std::fflush(stdout);
    reports.push_back(std::move(*report));
  }
  if (wanted->as_json) {
    nlohmann::json all = nlohmann::json::array();
    for (const Report& report : reports) all.push_back(report_json(report));
    fmt::print("{}\n", nlohmann::json{{"machine", machine}, {"benchmarks", all}}.dump(2));
  }
  if (wanted->report_file.empty()) return kExitFine;
  std::ofstream file(wanted->report_file);
  file << report_html(reports, machine);
  file.close();
  if (file) return kExitFine;
  return report_failure("bench", fail("cannot write {}", wanted->report_file));
}

}  // namespace sluice
