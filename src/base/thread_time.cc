#include "base/thread_time.h"

#include <dirent.h>

#include <fstream>
#include <string>

namespace sluice {

uint64_t thread_cpu_ns(std::string_view name, pid_t process) {
  const std::string folder =
      "/proc/" + (process == 0 ? std::string("self") : std::to_string(process)) + "/task";
  DIR* tasks = ::opendir(folder.c_str());
  if (tasks == nullptr) return 0;
  uint64_t total_ns = 0;
  while (const dirent* entry = ::readdir(tasks)) {
    const std::string task = folder + "/" + entry->d_name;
    std::ifstream comm(task + "/comm");
    std::string thread_name;
    if (!std::getline(comm, thread_name) || !thread_name.starts_with(name)) continue;
    uint64_t run_ns = 0;
    std::ifstream schedstat(task + "/schedstat");
    if (schedstat >> run_ns) total_ns += run_ns;
  }
  ::closedir(tasks);
  return total_ns;
}

}  // namespace sluice
