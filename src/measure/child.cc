#include "measure/child.h"

#include <dirent.h>
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <climits>
#include <fstream>

#include "base/clock.h"

namespace sluice {
namespace {

constexpr double kStopSecondsMax = 2;

[[noreturn]] void become(const std::vector<std::string>& words, int cpu, int output, pid_t parent) {
  // A benchmark that is killed leaves nobody behind.
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != parent) ::_exit(127);
  ::dup2(output, STDOUT_FILENO);
  ::dup2(output, STDERR_FILENO);
  if (cpu >= 0) {
    cpu_set_t cpus;
    CPU_ZERO(&cpus);
    CPU_SET(static_cast<size_t>(cpu), &cpus);
    ::sched_setaffinity(0, sizeof cpus, &cpus);
  }
  sigset_t none;
  ::sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
  std::vector<char*> arguments;
  for (const std::string& word : words) arguments.push_back(const_cast<char*>(word.c_str()));
  arguments.push_back(nullptr);
  ::execvp(arguments[0], arguments.data());
  ::_exit(127);
}

double seconds_since(uint64_t begin_ns) {
  return static_cast<double>(monotonic_ns() - begin_ns) / 1e9;
}

}  // namespace

Result<std::unique_ptr<Child>> Child::start(const std::vector<std::string>& words, int cpu) {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) return fail("pipe: {}", errno_text(errno));
  Fd read_end(ends[0]), write_end(ends[1]);
  const pid_t parent = ::getpid();
  const pid_t pid = ::fork();
  if (pid < 0) return fail("fork: {}", errno_text(errno));
  if (pid == 0) become(words, cpu, write_end.get(), parent);
  return std::unique_ptr<Child>(new Child(pid, std::move(read_end)));
}

Child::~Child() { stop(); }

bool Child::reap(bool wait) {
  if (ended_) return true;
  if (::waitpid(pid_, &status_, wait ? 0 : WNOHANG) != pid_) return false;
  ended_ = true;
  return true;
}

// False: there will be no more output.
bool Child::read_some(int milliseconds) {
  pollfd waiting{pipe_.get(), POLLIN, 0};
  if (::poll(&waiting, 1, milliseconds) <= 0) return true;
  char buffer[4096];
  const ssize_t got = ::read(pipe_.get(), buffer, sizeof buffer);
  if (got <= 0) return false;
  output_.append(buffer, static_cast<size_t>(got));
  return true;
}

bool Child::wait_for(std::string_view words, double seconds_max) {
  const uint64_t begin_ns = monotonic_ns();
  while (output_.find(words) == std::string::npos) {
    if (!read_some(20) || seconds_since(begin_ns) > seconds_max)
      return output_.find(words) != std::string::npos;
  }
  return true;
}

Result<int> Child::wait_until_ended(double seconds_max) {
  const uint64_t begin_ns = monotonic_ns();
  while (read_some(20)) {
    if (seconds_since(begin_ns) <= seconds_max) continue;
    stop();
    return fail("it did not end within {} seconds; it said: {}", seconds_max, output_);
  }
  reap(/*wait=*/true);
  return WIFEXITED(status_) ? WEXITSTATUS(status_) : 128 + WTERMSIG(status_);
}

void Child::stop() {
  if (reap(false)) return;
  ::kill(pid_, SIGTERM);
  const uint64_t begin_ns = monotonic_ns();
  while (!reap(false)) {
    if (seconds_since(begin_ns) > kStopSecondsMax) {
      ::kill(pid_, SIGKILL);
      reap(/*wait=*/true);
      return;
    }
    if (!read_some(10)) ::usleep(10'000);
  }
}

std::string own_program() {
  char path[PATH_MAX];
  const ssize_t bytes = ::readlink("/proc/self/exe", path, sizeof path);
  return bytes > 0 ? std::string(path, static_cast<size_t>(bytes)) : "sluice";
}

}  // namespace sluice
