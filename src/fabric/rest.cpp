// Engine: how long its thread may rest, and what wakes it.
#include <algorithm>

#include "fabric/engine.h"

namespace braid::fabric {

std::vector<int> Engine::wait_descriptors() {
  std::vector<int> descriptors;
  for (size_t i = 0; i < worker_.rail_count(); ++i) {
    const int descriptor = worker_.rail(i).wait_descriptor();
    if (descriptor < 0) return {};
    descriptors.push_back(descriptor);
  }
  if (ends_are_told()) descriptors.push_back(options_.processes->descriptor());
  return descriptors;
}

bool Engine::ends_are_told() const {
  return options_.processes != nullptr && options_.processes->descriptor() >= 0;
}

bool Engine::arm() {
  for (size_t i = 0; i < worker_.rail_count(); ++i)
    if (!worker_.rail(i).arm()) return false;
  return true;
}

uint64_t Engine::next_deadline_ns() const {
  uint64_t next_ns = Domain::kNever;
  if (peers_.size() > 0) next_ns = look_after_peers_ns_;
  const bool asks_for_ends = peers_.size() > 0 && options_.processes != nullptr && !ends_are_told();
  if (asks_for_ends) next_ns = std::min(next_ns, look_at_processes_ns_);
  if (!deadlines_.empty()) next_ns = std::min(next_ns, deadlines_.front().at_ns);
  for (size_t i = 0; i < worker_.rail_count(); ++i)
    if (const uint64_t within_ns = worker_.rail(i).look_within_ns(); within_ns != Domain::kNever)
      next_ns = std::min(next_ns, now_ns_ + within_ns);
  return next_ns;
}

}  // namespace braid::fabric
