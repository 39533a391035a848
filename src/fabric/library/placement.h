// Places an engine's memory and its thread on the NUMA node of its rails.
#pragma once

#include <sched.h>

#include "topology/machine.h"

namespace braid::fabric {

/// While it lives, the calling thread runs on CPUs of the node. Memory that the thread allocates
/// and touches lies there, and threads that it starts stay there. Does nothing if the host has one
/// node, if `node` is -1, or if this process may use no CPU of the node.
class OnNode {
 public:
  OnNode(const topology::Machine& machine, int node);
  ~OnNode();
  OnNode(const OnNode&) = delete;
  OnNode& operator=(const OnNode&) = delete;

 private:
  bool is_pinned_ = false;
  cpu_set_t before_{};
};

}  // namespace braid::fabric
