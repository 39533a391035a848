#include "fabric/library/open_wire.h"

#include <system_error>
#include <utility>
#include <vector>

#include "base/try.h"
#include "fabric/endpoints.h"
#include "fabric/ofi/shm_room.h"
#include "fabric/progress_thread.h"
#include "fabric/staged/domain.h"

namespace braid::fabric {
namespace {

std::unique_ptr<Domain> open_further(const ofi::Quirks& quirks, const std::string& address,
                                     Admits admits) {
  Result<std::unique_ptr<Domain>> opened = ofi::open_domain(quirks, address, admits);
  if (!opened.ok()) return nullptr;
  try {
    return with_progress_thread(std::move(opened).value());
  } catch (const std::system_error&) {  // no thread
    return nullptr;
  }
}

/// Each further endpoint has a thread. Where there is no room for as many, fewer suffice.
Result<std::unique_ptr<Domain>> open_endpoints(const ofi::Quirks& quirks,
                                               const std::string& address,
                                               const EndpointCount& counts, Admits admits) {
  BRAID_LET(first, ofi::open_domain(quirks, address, admits));
  const bool has_room = quirks.reaches_hosts || ofi::is_ample(ofi::shm_room());
  const size_t wanted = quirks.copies_by_cpu && has_room ? counts.at(address) : 1;
  if (wanted == 1) return std::move(first);
  std::vector<std::unique_ptr<Domain>> endpoints;
  endpoints.push_back(std::move(first));
  while (endpoints.size() < wanted) {
    std::unique_ptr<Domain> further = open_further(quirks, address, admits);
    if (further == nullptr) break;
    endpoints.push_back(std::move(further));
  }
  if (endpoints.size() == 1) return std::move(endpoints.front());
  EndpointOptions options;
  options.doors_max = doors_at_all_endpoints(counts.room, endpoints.size());
  return join_endpoints(std::move(endpoints), options);
}

}  // namespace

Result<std::unique_ptr<Domain>> open_wire(const ofi::Quirks& quirks, const std::string& address,
                                          const EndpointCount& counts, bool has_gpu_memory,
                                          const Trust& trust) {
  BRAID_LET(wire, open_endpoints(quirks, address, counts, trust.admits));
  if (!has_gpu_memory) return std::move(wire);
  const size_t doors = doors_at_all_endpoints(counts.room, wire->traits().endpoints);
  return staged::stage(std::move(wire), {trust.secret, doors / 2});
}

}  // namespace braid::fabric
