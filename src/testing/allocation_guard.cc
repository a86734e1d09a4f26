#include "testing/allocation_guard.h"

#include <unistd.h>

#include <cstdlib>
#include <new>

#if defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define SLUICE_SANITIZER_ALLOCATOR 1
#endif
#endif
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SLUICE_SANITIZER_ALLOCATOR 1
#endif

namespace sluice {
namespace {

thread_local size_t allocations_seen = 0;
thread_local size_t aborting_guards = 0;

void note_allocation() {
  ++allocations_seen;
  if (aborting_guards == 0) [[likely]]
    return;
  aborting_guards = 0;
  static constexpr char kText[] = "sluice: memory was allocated inside an AllocationGuard\n";
  [[maybe_unused]] const ssize_t written = ::write(STDERR_FILENO, kText, sizeof kText - 1);
  std::abort();
}

}  // namespace
}  // namespace sluice

#if defined(SLUICE_SANITIZER_ALLOCATOR)

// From the sanitizers' allocator_interface.h, which Debian's g++ does not bring along.
extern "C" int __sanitizer_install_malloc_and_free_hooks(void (*on_malloc)(const volatile void*,
                                                                           size_t),
                                                         void (*on_free)(const volatile void*));

namespace sluice {
namespace {

void on_malloc(const volatile void*, size_t) { note_allocation(); }
void on_free(const volatile void*) {}

void prepare() {
  static const int installed = __sanitizer_install_malloc_and_free_hooks(on_malloc, on_free);
  if (installed == 0) std::abort();
}

}  // namespace
}  // namespace sluice

#else

namespace sluice {
namespace {
void prepare() {}

void* allocate(size_t bytes, size_t alignment) {
  note_allocation();
  if (bytes == 0) bytes = 1;
  void* got = alignment <= alignof(std::max_align_t)
                  ? std::malloc(bytes)
                  : std::aligned_alloc(alignment, (bytes + alignment - 1) / alignment * alignment);
  if (got == nullptr) throw std::bad_alloc();
  return got;
}

}  // namespace
}  // namespace sluice

// The array and nothrow forms of the library end in these two.
void* operator new(size_t bytes) { return sluice::allocate(bytes, 0); }
void* operator new(size_t bytes, std::align_val_t alignment) {
  return sluice::allocate(bytes, static_cast<size_t>(alignment));
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, size_t) noexcept { std::free(memory); }
void operator delete(void* memory, std::align_val_t) noexcept { std::free(memory); }
void operator delete(void* memory, size_t, std::align_val_t) noexcept { std::free(memory); }

#endif

namespace sluice {

AllocationGuard::AllocationGuard(Mode mode) : mode_(mode) {
  prepare();
  allocations_before_ = allocations_seen;
  if (mode_ == Mode::abort) ++aborting_guards;
}

AllocationGuard::~AllocationGuard() {
  if (mode_ == Mode::abort) --aborting_guards;
}

size_t AllocationGuard::allocations() const { return allocations_seen - allocations_before_; }

}  // namespace sluice
