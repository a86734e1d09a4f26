// RunState: what a helper may know and change while a program runs on one frame.
//
// One a thread. The batch loop fills it before each frame and reads `redirect` after a program that
// returned XDP_REDIRECT. Helpers have no other way to the frame.
#pragma once

#include <cstdint>
#include <span>

struct xdp_md;

namespace sluice {

class XdpMap;

// Where the last redirect helper pointed. As in the kernel the last one counts, and only if the
// program then returns XDP_REDIRECT.
struct RedirectTarget {
  enum class Kind : uint8_t {
    none,       // no helper was called, or it found nothing
    port,       // `port` is the number of the port (what a program takes for an ifindex)
    broadcast,  // to every port that `map` (a devmap) holds, without the ingress port if asked
    no_place,   // an xskmap or a cpumap entry: there is no such place here
  };
  Kind kind = Kind::none;
  bool exclude_ingress = false;
  uint32_t port = 0;
  XdpMap* map = nullptr;
};

struct RunState {
  xdp_md* context = nullptr;     // the frame, as the program sees it
  uint8_t* chunk = nullptr;      // the frame's chunk begins here…
  uint8_t* chunk_end = nullptr;  // …and the program's part of it ends here (before the tailroom)
  uint32_t worker_index = 0;     // get_smp_processor_id, and which copy of a per-CPU value is ours
  RedirectTarget redirect;
  // What check_mtu answers from: by the port's number, without link headers. 0: no such port.
  std::span<const uint32_t> port_mtus;
  uint32_t tail_calls = 0;  // of this run; compiled code counts them here
};

inline thread_local RunState run_state;

}  // namespace sluice
