#include "measure/bench_kit.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

namespace sluice {

ScratchFolder::ScratchFolder() {
  char name[] = "/tmp/sluice-bench-XXXXXX";
  if (::mkdtemp(name) != nullptr) path = name;
}

ScratchFolder::~ScratchFolder() {
  std::error_code ignored;
  if (!path.empty()) std::filesystem::remove_all(path, ignored);
}

nlohmann::json last_object(const std::string& output) {
  const size_t begin = output.rfind("\n{");
  const size_t at = begin == std::string::npos ? output.find('{') : begin;
  if (at == std::string::npos) return nlohmann::json::value_t::discarded;
  return nlohmann::json::parse(output.substr(at), nullptr, /*allow_exceptions=*/false);
}

double figure(const nlohmann::json& object, const char* key) {
  const auto found = object.find(key);
  return found != object.end() && found->is_number() ? found->get<double>() : 0;
}

double cpu_busy_seconds(int cpu) {
  std::ifstream file("/proc/stat");
  const std::string wanted = fmt::format("cpu{} ", cpu);
  for (std::string line; std::getline(file, line);) {
    if (!line.starts_with(wanted)) continue;
    std::istringstream fields(line.substr(wanted.size()));
    // user nice system idle iowait irq softirq steal
    double ticks[8] = {};
    for (double& value : ticks) fields >> value;
    return (ticks[0] + ticks[1] + ticks[2] + ticks[5] + ticks[6]) /
           static_cast<double>(::sysconf(_SC_CLK_TCK));
  }
  return 0;
}

}  // namespace sluice
