#include "packet/gro.h"

namespace sluice {

void Gro::merge(FrameBatch&, const OffloadSet&) {}

void GroHold::add(FrameBatch& batch, const OffloadSet&, uint64_t) {
  for (Frame* frame : batch) ready_.push(frame);
  held_frames_ = ready_.size();
  batch.clear();
}

void GroHold::flush(FrameBatch& out, uint64_t) {
  SLUICE_ASSERT(out.room() >= ready_.size());
  for (Frame* frame : ready_) out.push(frame);
  ready_.clear();
  held_frames_ = 0;
}

}  // namespace sluice
