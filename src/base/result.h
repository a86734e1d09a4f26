// Result<T>: a value, or a Failure whose text is a sentence for a person.
//
// Used at set-up and on the control path only; the data path has small enums. A Failure says what
// happened and what to do next: "socket /run/a.sock is in use by process 12: stop it, or choose
// another path". The wrapper exists because tl::expected is not [[nodiscard]] and has no
// value check of its own for void.
//
//   Result<Fd> open_device();
//   Result<Fd> device = open_device();
//   if (!device) return fail(device.error());
//   use(device->get());
#pragma once

#include <fmt/format.h>

#include <cstring>
#include <string>
#include <tl/expected.hpp>
#include <utility>

#include "base/assert.h"

namespace sluice {

struct Failure {
  std::string text;
  bool is_usage = false;  // the caller's words were wrong: the program exits with 2, not 1
};

template <typename T>
class [[nodiscard]] Result {
 public:
  Result(T value) : expected_(std::move(value)) {}
  Result(Failure failure) : expected_(tl::unexpect, std::move(failure)) {}

  explicit operator bool() const { return expected_.has_value(); }
  T& operator*() { return value(); }
  const T& operator*() const { return value(); }
  T* operator->() { return &value(); }
  const T* operator->() const { return &value(); }
  T& value() {
    SLUICE_ASSERT(expected_.has_value());
    return *expected_;
  }
  const T& value() const {
    SLUICE_ASSERT(expected_.has_value());
    return *expected_;
  }
  const Failure& error() const {
    SLUICE_ASSERT(!expected_.has_value());
    return expected_.error();
  }

 private:
  tl::expected<T, Failure> expected_;
};

template <>
class [[nodiscard]] Result<void> {
 public:
  Result() = default;
  Result(Failure failure) : expected_(tl::unexpect, std::move(failure)) {}

  explicit operator bool() const { return expected_.has_value(); }
  const Failure& error() const {
    SLUICE_ASSERT(!expected_.has_value());
    return expected_.error();
  }

 private:
  tl::expected<void, Failure> expected_;
};

// A Failure from a format string: return fail("no interface {}: create it first", name);
template <typename... Args>
Failure fail(fmt::format_string<Args...> format, Args&&... args) {
  return Failure{fmt::format(format, std::forward<Args>(args)...)};
}
inline Failure fail(Failure failure) { return failure; }

// A Failure that is the user's to mend on the command line or in the config file (exit status 2).
template <typename... Args>
Failure usage_failure(fmt::format_string<Args...> format, Args&&... args) {
  return Failure{fmt::format(format, std::forward<Args>(args)...), true};
}

// The text of an errno value, safe to call from any thread.
inline std::string errno_text(int error_number) {
  char buffer[128] = {};
  return strerror_r(error_number, buffer, sizeof buffer);
}

}  // namespace sluice
