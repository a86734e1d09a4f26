// What benchmarks that start programs have in common.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

namespace sluice {

// The folder of one half's sockets; gone with the object.
class ScratchFolder {
 public:
  ScratchFolder();
  ~ScratchFolder();
  ScratchFolder(const ScratchFolder&) = delete;
  ScratchFolder& operator=(const ScratchFolder&) = delete;
  std::string path;  // empty: there is none
};

// The last line of a command's output that is a JSON object; else a discarded value.
nlohmann::json last_object(const std::string& output);
// A number of it, or 0.
double figure(const nlohmann::json& object, const char* key);

// Seconds that a CPU has worked since the machine started, interrupts included; what the host took
// for itself is left out.
double cpu_busy_seconds(int cpu);

}  // namespace sluice
