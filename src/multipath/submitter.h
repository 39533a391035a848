// A copy's way from the engine's interface to its target: is it worth it (planner.h), what memory
// is it (classify.h), whose context (context_registry.h). Each step may return a reason to stay
// native.
//
// Threads: any. Allocates nothing and waits for nothing.
#pragma once

#include <atomic>
#include <vector>

#include "base/options.h"
#include "cuda/driver.h"
#include "multipath/context_registry.h"
#include "multipath/peer_processes.h"
#include "multipath/planner.h"
#include "multipath/relay_topology.h"
#include "multipath/transfer.h"

namespace braid::multipath {

class Submitter {
 public:
  /// All arguments must outlive this object.
  Submitter(const cuda::Driver& driver, const RelayTopology& relays, const Planner& planner,
            const PeerProcesses& peers, ContextRegistry& registry)
      : driver_(driver), relays_(relays), planner_(planner), peers_(peers), registry_(registry) {}

  /// Engine::submit, and Engine::forecast.
  Outcome submit(const Batch& batch, Intent intent = Intent::kCopy);

  /// Engine::paths_of.
  std::vector<CopyPath> paths_of(int gpu, Direction direction, uint64_t size_bytes);

  /// Engine::limit_paths.
  void limit_paths(int paths) { path_limit_.store(paths); }

 private:
  const cuda::Driver& driver_;
  const RelayTopology& relays_;
  const Planner& planner_;
  const PeerProcesses& peers_;
  ContextRegistry& registry_;
  std::atomic<int> path_limit_{0};
};

}  // namespace braid::multipath
