#include "preload/peers.h"

namespace braid::preload {

CUresult PeerLedger::enabled(CUcontext context, CUcontext peer, CUresult driver_answer,
                             bool braid_enables) {
  if (driver_answer == CUDA_SUCCESS) {
    pairs_.emplace(context, peer);
    return CUDA_SUCCESS;
  }
  if (driver_answer != CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED || !braid_enables)
    return driver_answer;
  const bool is_first = pairs_.emplace(context, peer).second;
  return is_first ? CUDA_SUCCESS : driver_answer;
}

bool PeerLedger::disabled(CUcontext context, CUcontext peer) {
  return pairs_.erase({context, peer}) != 0;
}

void PeerLedger::forget(CUcontext context) {
  std::erase_if(pairs_,
                [&](const auto& pair) { return pair.first == context || pair.second == context; });
}

}  // namespace braid::preload
