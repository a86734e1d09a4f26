// Child: a process of a benchmark, pinned to a CPU, with its output in a pipe.
//
// It is ended when the object goes, also on a failure in the middle. Waiting has a bound.
//
//   auto daemon = Child::start({self, "run", …}, /*cpu=*/1);
//   if (!daemon->wait_for("ready", 10)) return fail("…: {}", daemon->output());
#pragma once

#include <sys/types.h>

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/fd.h"
#include "base/result.h"
#include "base/thread_time.h"

namespace sluice {

class Child {
 public:
  // `cpu` -1: wherever the kernel puts it. Output and errors come in one stream.
  static Result<std::unique_ptr<Child>> start(const std::vector<std::string>& words, int cpu);
  ~Child();
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;

  // Until the output contains the words; false: it has ended, or the time is up.
  bool wait_for(std::string_view words, double seconds_max);
  // Until it ends by itself: its exit status, or a failure that says what it printed.
  Result<int> wait_until_ended(double seconds_max);
  // Asks it to stop, and ends it if it does not within two seconds.
  void stop();
  pid_t pid() const { return pid_; }
  const std::string& output() const { return output_; }
  // CPU time that its threads whose names begin with `name` have used.
  uint64_t thread_cpu_ns(std::string_view name) const { return sluice::thread_cpu_ns(name, pid_); }

 private:
  Child(pid_t pid, Fd output) : pid_(pid), pipe_(std::move(output)) {}
  bool read_some(int milliseconds);
  bool reap(bool wait);

  pid_t pid_;
  Fd pipe_;
  std::string output_;
  bool ended_ = false;
  int status_ = 0;
};

// The program that runs us, for children of the same build.
std::string own_program();

}  // namespace sluice
