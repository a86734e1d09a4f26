// CPU time of threads, by name, as the kernel accounts it.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string_view>

namespace sluice {

// What the threads of a process have used whose names begin with `name`; 0: ourselves. Of a process
// that has ended, 0.
uint64_t thread_cpu_ns(std::string_view name, pid_t process = 0);

}  // namespace sluice
