// What the tests of maps share: keys and values as bytes, and the kernel's own map as the oracle.
//
// KernelTwin is a map of the same shape in the kernel, reached through bpf(2). compare_with_kernel
// does the same random steps to both and expects the same answers and, now and then, the same
// contents. Where the kernel does not let us make maps, it skips.
#pragma once

#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <gtest/gtest.h>
#include <sys/utsname.h>

#include <cerrno>
#include <cstdio>
#include <functional>
#include <map>
#include <memory>
#include <random>
#include <vector>

#include "base/fd.h"
#include "xdp/helper_table.h"
#include "xdp/map.h"
#include "xdp/map_memory.h"
#include "xdp/run_state.h"

namespace sluice {

using Bytes = std::vector<uint8_t>;

template <typename T>
Bytes bytes_of(const T& value) {
  const auto* begin = reinterpret_cast<const uint8_t*>(&value);
  return Bytes(begin, begin + sizeof value);
}

inline std::unique_ptr<XdpMap> make_map(const MapShape& shape, const MapOptions& options = {}) {
  Result<std::unique_ptr<XdpMap>> map = create_map(shape, options);
  EXPECT_TRUE(map) << (map ? "" : map.error().text);
  return map ? std::move(*map) : nullptr;
}

// Calls a helper as program code does.
template <typename... Arguments>
uint64_t call_helper(uint32_t id, Arguments... arguments) {
  static const HelperTable table{map_helpers()};
  uint64_t registers[5] = {};
  size_t i = 0;
  ((registers[i++] =
        [](auto argument) {
          if constexpr (std::is_pointer_v<decltype(argument)>) {
            return reinterpret_cast<uint64_t>(argument);
          } else {
            return static_cast<uint64_t>(argument);
          }
        }(arguments)),
   ...);
  const HelperFunction function = table.find(id);
  if (function == nullptr) {
    ADD_FAILURE() << "no helper " << id;
    return 0;
  }
  return function(registers[0], registers[1], registers[2], registers[3], registers[4]);
}

// Every key and value of a map, as control threads see it.
inline std::map<Bytes, Bytes> contents_of(XdpMap& map) {
  std::map<Bytes, Bytes> contents;
  Bytes key(map.shape().key_size);
  Bytes value(map.value_bytes());
  int status = map.next_key(nullptr, key.data());
  while (status == 0) {
    if (map.read(key.data(), value.data()) == 0) contents[key] = value;
    Bytes next(key.size());
    status = map.next_key(key.data(), next.data());
    key = next;
  }
  return contents;
}

inline bool kernel_is_at_least(int major, int minor) {
  utsname name = {};
  int have_major = 0;
  int have_minor = 0;
  if (::uname(&name) != 0) return false;
  if (std::sscanf(name.release, "%d.%d", &have_major, &have_minor) != 2) return false;
  return have_major > major || (have_major == major && have_minor >= minor);
}

class KernelTwin {
 public:
  explicit KernelTwin(const MapShape& shape) : shape_(shape) {
    LIBBPF_OPTS(bpf_map_create_opts, options);
    options.map_flags = shape.flags;
    options.map_extra = shape.extra;
    fd_ = Fd(::bpf_map_create(shape.type, "sluice_twin", shape.key_size, shape.value_size,
                              shape.max_entries, &options));
    error_ = fd_ ? 0 : errno;
  }
  bool is_refused() const { return error_ == EPERM || error_ == ENOSYS; }
  int error() const { return error_; }
  int fd() const { return fd_.get(); }

  int update(const void* key, const void* value, uint64_t flags) const {
    return ::bpf_map_update_elem(fd_.get(), key, value, flags);
  }
  int erase(const void* key) const { return ::bpf_map_delete_elem(fd_.get(), key); }
  int read(const void* key, void* value) const {
    return ::bpf_map_lookup_elem(fd_.get(), key, value);
  }
  int pop(void* value) const { return ::bpf_map_lookup_and_delete_elem(fd_.get(), nullptr, value); }
  int next_key(const void* key, void* next) const {
    return ::bpf_map_get_next_key(fd_.get(), key, next);
  }
  std::map<Bytes, Bytes> contents(size_t value_bytes) const {
    std::map<Bytes, Bytes> contents;
    Bytes key(shape_.key_size);
    Bytes value(value_bytes);
    int status = next_key(nullptr, key.data());
    while (status == 0) {
      if (read(key.data(), value.data()) == 0) contents[key] = value;
      Bytes next(key.size());
      status = next_key(key.data(), next.data());
      key = next;
    }
    return contents;
  }

 private:
  const MapShape shape_;
  Fd fd_;
  int error_ = 0;
};

// The kernel keeps one copy a possible processor.
inline uint32_t kernel_copies() { return static_cast<uint32_t>(::libbpf_num_possible_cpus()); }

struct OracleRun {
  MapShape shape;
  std::function<Bytes(std::mt19937_64&)> key;
  std::function<void(std::mt19937_64&, Bytes&)> value = {};  // empty: random bytes
  std::vector<uint64_t> flags = {BPF_ANY,   BPF_ANY, BPF_ANY,    BPF_NOEXIST, BPF_NOEXIST,
                                 BPF_EXIST, 3,       BPF_F_LOCK, 1ULL << 40};
  int steps = 12000;
  uint64_t seed = 20240611;
  // A read that fails with one of these numbers says the same as no entry.
};

// The padding of a per-CPU copy is nobody's.
inline void forget_padding(const XdpMap& map, Bytes& value) {
  const size_t size = map.shape().value_size;
  const size_t stride = value_stride(size);
  for (size_t at = 0; at + stride <= value.size() && map.copies() > 1; at += stride) {
    std::fill(value.begin() + at + size, value.begin() + at + stride, uint8_t{0});
  }
}

class OracleComparison {
 public:
  OracleComparison(const OracleRun& run, XdpMap& ours, const KernelTwin& kernel)
      : run_(run), ours_(ours), kernel_(kernel), random_(run.seed) {}

  void run() {
    for (int i = 0; i < run_.steps && !testing::Test::HasFailure(); ++i) {
      SCOPED_TRACE(testing::Message() << "seed " << run_.seed << ", step " << i);
      step();
      if (i % 1000 == 999 || i + 1 == run_.steps) compare_contents();
    }
  }

 private:
  void step() {
    const Bytes key = run_.key(random_);
    const uint64_t choice = random_() % 8;
    if (choice < 4) {
      const Bytes value = make_value();
      const uint64_t flags = run_.flags[random_() % run_.flags.size()];
      const int expected = kernel_.update(key.data(), value.data(), flags);
      EXPECT_EQ(ours_.write(key.data(), value.data(), flags), expected)
          << "update, flags " << flags;
    } else if (choice < 6) {
      const int expected = kernel_.erase(key.data());
      EXPECT_EQ(ours_.erase(key.data()), expected) << "erase";
    } else {
      Bytes theirs(ours_.value_bytes());
      Bytes value(ours_.value_bytes());
      const int expected = kernel_.read(key.data(), theirs.data());
      EXPECT_EQ(ours_.read(key.data(), value.data()), expected) << "read";
      if (expected != 0) return;
      forget_padding(ours_, theirs);
      forget_padding(ours_, value);
      EXPECT_EQ(value, theirs);
    }
  }

  Bytes make_value() {
    Bytes value(ours_.value_bytes());
    if (run_.value) {
      run_.value(random_, value);
    } else {
      for (uint8_t& byte : value) byte = static_cast<uint8_t>(random_());
    }
    return value;
  }

  void compare_contents() {
    std::map<Bytes, Bytes> theirs = kernel_.contents(ours_.value_bytes());
    std::map<Bytes, Bytes> contents = contents_of(ours_);
    for (auto* side : {&theirs, &contents}) {
      for (auto& [key, value] : *side) forget_padding(ours_, value);
    }
    EXPECT_EQ(contents.size(), theirs.size());
    EXPECT_TRUE(contents == theirs) << "the contents differ";
  }

  const OracleRun& run_;
  XdpMap& ours_;
  const KernelTwin& kernel_;
  std::mt19937_64 random_;
};

inline void compare_with_kernel(const OracleRun& run) {
  const KernelTwin kernel(run.shape);
  if (kernel.is_refused()) GTEST_SKIP() << "the kernel lets nobody make maps here";
  ASSERT_EQ(kernel.error(), 0) << errno_text(kernel.error());
  std::unique_ptr<XdpMap> ours = make_map(run.shape, {.worker_count = kernel_copies()});
  ASSERT_NE(ours, nullptr);
  OracleComparison(run, *ours, kernel).run();
}

// Keys of `bytes` bytes, `count` different ones.
inline std::function<Bytes(std::mt19937_64&)> few_keys(size_t bytes, uint64_t count) {
  return [bytes, count](std::mt19937_64& random) {
    const uint64_t number = random() % count;
    Bytes key(bytes, 0xa5);
    std::memcpy(key.data(), &number, std::min(bytes, sizeof number));
    return key;
  };
}

}  // namespace sluice
