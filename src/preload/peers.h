// Which pairs of contexts the program itself has given peer access. braid enables pairs for its own
// use; the program must get the answers it would get without braid, and braid must keep its access.
// Pure bookkeeping of CUDA's rule: access is one-way, enabled at most once, and ends with either
// context.
#pragma once

#include <cuda.h>

#include <set>
#include <utility>

namespace braid::preload {

/// Not safe for concurrent use: its owner locks.
class PeerLedger {
 public:
  /// What the program hears for enabling `peer`'s memory in `context`, given the driver's answer.
  /// `braid_enables`: pairs may have been enabled by braid, so "already" may not mean the program.
  CUresult enabled(CUcontext context, CUcontext peer, CUresult driver_answer, bool braid_enables);

  /// Removes the pair; false when the program had not enabled it.
  bool disabled(CUcontext context, CUcontext peer);

  /// The context is gone, and its pairs with it.
  void forget(CUcontext context);

 private:
  std::set<std::pair<CUcontext, CUcontext>> pairs_;  // (context, peer)
};

}  // namespace braid::preload
