#include "fabric/library/placement.h"

namespace braid::fabric {

OnNode::OnNode(const topology::Machine& machine, int node) {
  if (node < 0 || machine.numa_nodes().size() < 2) return;
  if (sched_getaffinity(0, sizeof before_, &before_) != 0) return;
  cpu_set_t wanted;
  CPU_ZERO(&wanted);
  for (const int cpu : machine.cpus_of_node(node))
    if (cpu < CPU_SETSIZE && CPU_ISSET(cpu, &before_)) CPU_SET(cpu, &wanted);
  if (CPU_COUNT(&wanted) == 0) return;
  is_pinned_ = sched_setaffinity(0, sizeof wanted, &wanted) == 0;
}

OnNode::~OnNode() {
  if (is_pinned_) sched_setaffinity(0, sizeof before_, &before_);
}

}  // namespace braid::fabric
