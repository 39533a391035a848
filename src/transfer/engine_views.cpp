// Engine: what is seen of its memory, links and ways.
#include <algorithm>

#include "transfer/engine.h"

namespace braid::transfer {

/// How many rails before it have the same provider and address.
size_t Engine::rails_alike_before(size_t rail) const {
  return static_cast<size_t>(std::count_if(rails_.begin(),
                                           rails_.begin() + static_cast<std::ptrdiff_t>(rail),
                                           [&](const RailDescription& other) {
                                             return other.provider == rails_[rail].provider &&
                                                    other.host_address == rails_[rail].host_address;
                                           }));
}

std::string Engine::rail_name(size_t rail) const {
  const size_t before = rails_alike_before(rail);
  return rails_[rail].provider + " " + rails_[rail].host_address +
         (before > 0 ? " (" + std::to_string(before + 1) + ")" : "");
}

std::vector<RefusedMemory> Engine::refused_memory() const {
  std::vector<RefusedMemory> all;
  for (const Buffer& buffer : owned_->buffers.all())
    for (const RailRefusal& refusal : buffer.refusals)
      all.push_back({rail_name(refusal.rail), buffer.address(), buffer.memory.size(), refusal.why});
  return all;
}

std::vector<LinkUse> Engine::links() const {
  std::vector<LinkUse> all;
  for (size_t rail = 0; rail < fabric_.rail_count(); ++rail)
    for (const LinkStatistics& link : fabric_.rail(rail).statistics())
      all.push_back({rail_name(rail), link});
  return all;
}

std::vector<PathStatistics> Engine::paths() const {
  std::vector<PathStatistics> all;
  for (const auto& [id, path] : paths_)
    all.push_back({peers_.find(path.peer)->who, path.text, scheduler_.view(id, now_ns_)});
  return all;
}

}  // namespace braid::transfer
