// Loading an XDP program from an object file: libbpf opens and relocates it, the kernel's verifier
// judges it, and what comes out are the instructions that were judged.
//
// The kernel keeps a copy of the program, unused, as the proof (its tag is compared where the
// instructions will run), and twins of the maps; an array's twin is also its memory. Nothing is
// pinned, so all of it goes when the last descriptor is closed.
//
// Needs CAP_BPF, CAP_NET_ADMIN and CAP_PERFMON, or root.
//
//   Result<XdpObject> object = load_xdp_object({.path = "drop.o"});
#pragma once

#include <string>
#include <vector>

#include "base/fd.h"
#include "base/result.h"
#include "xdp/instruction.h"
#include "xdp/map.h"

namespace sluice {

struct ObjectRequest {
  std::string path;
  std::string program;  // empty: the only one
  // Where the kernel may not be asked: take the instructions as they are in the file, for the
  // checked interpreter. What the verifier refuses stays refused.
  bool may_be_unverified = false;
};

// A map that the programs name; the 64-bit immediates hold its index in XdpObject::maps.
struct ObjectMap {
  MapShape shape;
  std::optional<MapShape> inner;  // of a map of maps
  Fd fd;                          // the kernel's twin; none when not verified
  uint32_t kernel_id = 0;
  std::vector<uint8_t> initial;  // of globals that were not verified: what the file says
};

struct ObjectProgram {
  std::string name;
  std::vector<Instruction> instructions;
  Fd fd;  // the kernel's copy; none when not verified
};

// A slot that the file fills: of a prog array with a program, of an array of maps with a map.
struct ObjectSlot {
  uint32_t map = 0;
  uint32_t index = 0;
  uint32_t target = 0;  // index in XdpObject::programs or ::maps
};

struct XdpObject {
  std::string path;
  std::vector<ObjectProgram> programs;  // the first is the one to attach, others are tail-called
  std::vector<ObjectMap> maps;
  std::vector<ObjectSlot> slots;
  uint64_t kernel_ns = 0;  // what opening, verifying and the kernel's own compiler took
};

Result<XdpObject> load_xdp_object(const ObjectRequest& request);

// What matters of a verifier's log: its last complaint, and the source line that it is about.
std::string shortened_verifier_log(std::string_view log);

}  // namespace sluice
