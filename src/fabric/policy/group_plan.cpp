#include "fabric/policy/group_plan.h"

#include <string>
#include <utility>

namespace braid::fabric {

Result<std::vector<Plan>> plan_scatter(std::span<const Part> parts, uint64_t source_bytes,
                                       std::span<const uint64_t> target_bytes,
                                       const Slicing& slicing) {
  if (parts.size() != target_bytes.size())
    return Status::error("the scatter has " + std::to_string(parts.size()) +
                         " parts, and its group has " + std::to_string(target_bytes.size()) +
                         " members");
  std::vector<Plan> plans;
  plans.reserve(parts.size());
  for (size_t i = 0; i < parts.size(); ++i) {
    Result<Plan> plan = Plan::single(parts[i].slice, source_bytes, target_bytes[i], slicing);
    if (!plan.ok())
      return Status::error("part " + std::to_string(i) + ": " + plan.status().message());
    plans.push_back(std::move(plan).value());
  }
  return plans;
}

}  // namespace braid::fabric
