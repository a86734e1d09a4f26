// A program of an object file, in the kernel and in our engines at once, each with maps of its own.
//
// The maps begin with the same content; a tail call finds the program itself at index 0. Then each
// packet must end the same, and the maps must stay the same. Which keys a program looks for is
// found out by letting it: fill() runs packets through the interpreter, writes down the keys, and
// gives random values to some of them.
//
//   Result<std::unique_ptr<OracleObject>> object = OracleObject::load("filter.o", "filter", {});
//   Result<void> filled = object->fill(packets, random);
//   for (…) if (Result<void> same = object->compare(packet); !same) …
//   Result<void> same = object->compare_maps();
#pragma once

#include <bpf/libbpf.h>

#include <memory>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "base/result.h"
#include "testing/xdp_oracle.h"
#include "xdp/map.h"

namespace sluice {

// The names of the programs in an object.
Result<std::vector<std::string>> programs_in(const std::string& path);

struct OracleOptions {
  // Maps whose content depends on the time, or on which processor it was.
  std::set<std::string> ignored_maps;
};

class OracleObject {
 public:
  // The kernel refuses the object or the program: the failure is the end of its log.
  static Result<std::unique_ptr<OracleObject>> load(const std::string& path,
                                                    const std::string& program,
                                                    const OracleOptions& options);
  ~OracleObject();
  OracleObject(const OracleObject&) = delete;
  OracleObject& operator=(const OracleObject&) = delete;

  Result<void> fill(std::span<const std::vector<uint8_t>> packets, std::mt19937_64& random);
  // What all engines agreed on.
  Result<OracleOutcome> compare(std::span<const uint8_t> packet);
  Result<void> compare_maps();
  size_t map_count() const { return maps_.size(); }
  size_t entries_filled() const { return entries_filled_; }

 private:
  // Three of them: the kernel's and one for each engine.
  struct Triple {
    std::string name;
    int fd = -1;
    bool is_internal = false;  // globals
    bool is_compared = false;
    std::unique_ptr<XdpMap> ours[2];
    std::set<std::vector<uint8_t>> keys;  // that were looked for
  };

  explicit OracleObject(const OracleOptions& options) : options_(options) {}
  Result<void> open(const std::string& path, const std::string& program);
  Result<void> make_map(bpf_map* map);
  Result<void> make_engines(const bpf_program* program);
  Result<void> put_program(const XdpProgram& program, size_t engine, int fd);
  Result<void> copy_globals(Triple& map);
  Result<void> put_everywhere(Triple& map, const std::vector<uint8_t>& key,
                              std::mt19937_64& random);
  Result<void> fill_map(Triple& map, std::mt19937_64& random);
  static Result<void> compare_map(Triple& map);

  const OracleOptions options_;
  bpf_object* object_ = nullptr;
  std::vector<Triple> maps_;
  std::unique_ptr<KernelProgram> kernel_;
  std::vector<UserProgram> engines_;
  size_t entries_filled_ = 0;
};

}  // namespace sluice
