// Where an engine's memory and its thread stand: the NUMA node of its rails.
#pragma once

#include <sched.h>

#include "topology/machine.h"

namespace braid::fabric {

/// While it lives, the calling thread runs on CPUs of the node: what it allocates and touches lies
/// there, and threads that it starts stay there. Does nothing on a host with one node, with node
/// -1, or where this process may use no CPU of the node.
class OnNode {
 public:
  OnNode(const topology::Machine& machine, int node);
  ~OnNode();
  OnNode(const OnNode&) = delete;
  OnNode& operator=(const OnNode&) = delete;

  bool is_pinned() const { return is_pinned_; }

 private:
  bool is_pinned_ = false;
  cpu_set_t before_{};
};

}  // namespace braid::fabric
