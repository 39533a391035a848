// The C interface: groups of peers.
#include <algorithm>
#include <utility>

#include "fabric/library/abi.h"

using namespace braid::fabric;
using namespace braid::fabric::abi;
using braid::Result;

braid_status braid_fabric_add_group(braid_fabric* fabric, const braid_fabric_member* members,
                                    size_t count, uint64_t* group) {
  const auto add = [&](Service& service) {
    std::vector<GroupMember> all;
    for (size_t i = 0; i < count; ++i)
      all.push_back({members[i].peer, members[i].target, members[i].immediate_there,
                     members[i].immediate_here});
    return hand_out(service.with([&](Engine& engine) { return engine.add_group(std::move(all)); }),
                    group);
  };
  return guarded(fabric, add, members, group);
}

braid_status braid_fabric_remove_group(braid_fabric* fabric, uint64_t group) {
  return guarded(fabric, [&](Service& service) {
    return report(service.with([&](Engine& engine) { return engine.remove_group(group); }));
  });
}

braid_status braid_fabric_scatter(braid_fabric* fabric, uint64_t region, uint64_t group,
                                  const braid_fabric_part* parts, size_t count,
                                  const braid_fabric_rails* rails, uint64_t limit_us,
                                  uint64_t* ticket) {
  const auto scatter = [&](Service& service) {
    std::vector<Part> all;
    for (size_t i = 0; i < count; ++i)
      all.push_back(
          {{parts[i].source_offset_bytes, parts[i].target_offset_bytes, parts[i].size_bytes},
           optional_of(parts[i].immediate)});
    return hand_out(service.with([&](Engine& engine) {
      return engine.scatter(region, group, all, braid::monotonic_after_ns(limit_us),
                            range_of(rails));
    }),
                    ticket);
  };
  return guarded(fabric, scatter, parts, ticket);
}

braid_status braid_fabric_barrier(braid_fabric* fabric, uint64_t group, uint64_t limit_us,
                                  uint64_t* ticket) {
  const auto barrier = [&](Service& service) {
    return hand_out(service.with([&](Engine& engine) {
      return engine.barrier(group, braid::monotonic_after_ns(limit_us));
    }),
                    ticket);
  };
  return guarded(fabric, barrier, ticket);
}

braid_status braid_fabric_missing(braid_fabric* fabric, uint64_t ticket, uint64_t* peers,
                                  size_t capacity, size_t* count) {
  const auto ask = [&](Service& service) {
    const Result<std::vector<uint64_t>> missing =
        service.with([&](Engine& engine) { return engine.missing(ticket); });
    if (!missing.ok()) return report(missing.status());
    *count = missing.value().size();
    const size_t told = peers == nullptr ? 0 : std::min(capacity, *count);
    std::copy_n(missing.value().begin(), told, peers);
    return BRAID_OK;
  };
  return guarded(fabric, ask, count);
}
