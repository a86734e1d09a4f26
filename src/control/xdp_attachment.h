// XdpAttachment: an object's programs and maps, alive in this process and ready to run.
//
// The border at which what a client handed over is believed: each program's instructions must have
// the tag of the kernel's copy, each map's shape is what the kernel says of its twin, and each
// array's memory is the twin's own, so that `bpftool map dump` shows what the program counts.
//
//   Result<std::unique_ptr<XdpAttachment>> made = XdpAttachment::create(std::move(object),
//   options); engine.set_program(port, &(*made)->program());
//
// It must outlive the last breath in which a worker may run it.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "control/xdp_object.h"
#include "control/xdp_tag.h"
#include "xdp/map.h"
#include "xdp/xdp_program.h"

namespace sluice {

struct AttachmentOptions {
  uint32_t worker_count = 1;
  bool may_be_unverified = false;  // --xdp-unverified=interpret
};

class XdpAttachment {
 public:
  static Result<std::unique_ptr<XdpAttachment>> create(XdpObject object,
                                                       const AttachmentOptions& options);

  const XdpProgram& program() const { return *programs_.front(); }
  const std::string& name() const { return object_.programs.front().name; }
  const std::string& path() const { return object_.path; }
  std::string tag() const;  // empty: not verified
  std::string_view engine() const;
  size_t instruction_count() const { return object_.programs.front().instructions.size(); }
  uint64_t kernel_ns() const { return object_.kernel_ns; }
  uint64_t own_ns() const { return own_ns_; }  // what checking and compiling took

  size_t map_count() const { return maps_.size(); }
  XdpMap& map(size_t index) const { return *maps_[index]; }
  XdpMap* find_map(std::string_view name) const;
  const ObjectMap& object_map(size_t index) const { return object_.maps[index]; }

 private:
  explicit XdpAttachment(XdpObject object) : object_(std::move(object)) {}
  Result<void> make_maps(const AttachmentOptions& options);
  Result<void> make_programs();
  Result<void> fill_slots();
  Result<void> believe_map(ObjectMap& map) const;
  Result<void> check_maps_of(const ObjectProgram& program) const;
  bool is_verified() const { return object_.programs.front().fd.valid(); }

  XdpObject object_;
  uint64_t own_ns_ = 0;
  // Programs name maps, and prog arrays programs: the maps go last.
  std::vector<std::unique_ptr<XdpMap>> maps_;
  std::vector<std::unique_ptr<XdpProgram>> programs_;
};

}  // namespace sluice
