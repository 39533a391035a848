// Engine: what is seen of its memory, links and ways.
#include "transfer/engine.h"

namespace braid::transfer {

std::vector<RefusedMemory> Engine::refused_memory() const {
  std::vector<RefusedMemory> all;
  for (const Buffer& buffer : owned_->buffers.all())
    for (const RailRefusal& refusal : buffer.refusals)
      all.push_back({rails_[refusal.rail].provider + " " + rails_[refusal.rail].host_address,
                     buffer.address(), buffer.memory.size(), refusal.why});
  return all;
}

std::vector<LinkUse> Engine::links() const {
  std::vector<LinkUse> all;
  for (size_t rail = 0; rail < fabric_.rail_count(); ++rail)
    for (const LinkStatistics& link : fabric_.rail(rail).statistics())
      all.push_back({rails_[rail].provider + " " + rails_[rail].host_address, link});
  return all;
}

std::vector<PathStatistics> Engine::paths() const {
  std::vector<PathStatistics> all;
  for (const auto& [id, path] : paths_)
    all.push_back({peers_.find(path.peer)->who, path.text, scheduler_.view(id, now_ns_)});
  return all;
}

}  // namespace braid::transfer
