#include "port/nic_interrupts.h"

#include <pthread.h>
#include <sched.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <cerrno>

#include "port/foreign_event.h"

namespace sluice {
namespace {

constexpr uint64_t kBellKey = ~uint64_t{0};

}  // namespace

Result<std::unique_ptr<NicInterrupts>> NicInterrupts::start(int cpu) {
  Fd epoll(::epoll_create1(EPOLL_CLOEXEC));
  Fd bell(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!epoll || !bell) return fail("an interrupt handler: {}", errno_text(errno));
  epoll_event event{.events = EPOLLIN, .data = {.u64 = kBellKey}};
  if (::epoll_ctl(epoll.get(), EPOLL_CTL_ADD, bell.get(), &event) != 0)
    return fail("an interrupt handler: {}", errno_text(errno));
  std::unique_ptr<NicInterrupts> handler(new NicInterrupts(std::move(epoll), std::move(bell)));
  handler->thread_ = std::thread([raw = handler.get()] { raw->run(); });
  cpu_set_t cpus;
  CPU_ZERO(&cpus);
  CPU_SET(static_cast<size_t>(cpu), &cpus);
  const int error = ::pthread_setaffinity_np(handler->thread_.native_handle(), sizeof cpus, &cpus);
  if (error != 0)
    return fail("cannot put the interrupt handler on CPU {}: {}", cpu, errno_text(error));
  return handler;
}

NicInterrupts::~NicInterrupts() {
  stopping_.store(true);
  const uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = ::write(bell_.get(), &one, sizeof one);
  thread_.join();
}

Result<void> NicInterrupts::watch(NicQueue& queue) {
  const std::lock_guard lock(mutex_);
  epoll_event event{.events = EPOLLIN, .data = {.u64 = queues_.size()}};
  if (::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, queue.transmit_call(), &event) != 0)
    return fail("cannot watch a call: {}", errno_text(errno));
  queues_.push_back(&queue);
  calls_.push_back(queue.transmit_call());
  return {};
}

void NicInterrupts::forget_all() {
  const std::lock_guard lock(mutex_);
  for (const int call : calls_) ::epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, call, nullptr);
  queues_.clear();
  calls_.clear();
}

void NicInterrupts::run() {
  ::pthread_setname_np(::pthread_self(), "sluice-irq");
  while (!stopping_.load()) {
    epoll_event events[64];
    const int count = ::epoll_wait(epoll_.get(), events, 64, -1);
    const std::lock_guard lock(mutex_);
    for (int i = 0; i < count; ++i) {  // at most 64
      const uint64_t key = events[i].data.u64;
      if (key == kBellKey || key >= queues_.size()) continue;
      if (!take_foreign_event(calls_[key])) continue;
      count_.fetch_add(1, std::memory_order_relaxed);
      queues_[key]->on_interrupt();
    }
  }
}

}  // namespace sluice
