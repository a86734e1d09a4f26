// FaultBell: how a worker tells the control thread that there is something to look at: written by
// workers, read by the control thread after its eventfd fired.
#pragma once

#include "base/fd.h"
#include "base/result.h"

namespace sluice {

class FaultBell {
 public:
  static Result<FaultBell> create();
  FaultBell() = default;
  int fd() const { return event_.get(); }
  void ring();
  void silence();

 private:
  Fd event_;
};

}  // namespace sluice
