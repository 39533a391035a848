#include "transfer/library/open_engine.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <utility>
#include <vector>

#include "base/options.h"
#include "base/try.h"
#include "fabric/host/processes.h"
#include "host/random_number.h"
#include "transfer/failure.h"
#include "transfer/library/multipath_copies.h"
#include "transfer/providers.h"

namespace braid::transfer {
namespace {

/// Null: the engine does without shares, because /dev/shm is full, for example, or the user wants
/// none.
std::shared_ptr<HostShares> open_shares(const std::vector<RailDescription>& rails) {
  const auto asked = read_options([](const char* name) {
    return std::strcmp(name, "BRAID_PROCESSES") == 0 ? std::getenv(name) : nullptr;
  });
  if (!asked.ok() || asked.value().process_table.empty()) return nullptr;
  auto shares = HostShares::open(HostShares::usual_name(), rails);
  return shares.ok() ? std::move(shares).value() : nullptr;
}

bool maps_memory(const OpenOptions& options) {
  const auto& providers = options.providers;
  return providers.empty() ||
         std::find(providers.begin(), providers.end(), kMapped) != providers.end();
}

bool moves_gpu_memory(const OpenOptions& options) {
  return options.has_gpu_memory ||
         std::any_of(options.providers.begin(), options.providers.end(), reaches_gpus);
}

/// Of copies that have ended there are none.
auto paths_of(const std::shared_ptr<MultipathCopies>& copies) {
  return [from = std::weak_ptr(copies)](int gpu, bool is_to_gpu, uint64_t size_bytes) {
    const auto copier = from.lock();
    return copier != nullptr ? copier->paths(gpu, is_to_gpu, size_bytes) : std::vector<CopyPath>();
  };
}

}  // namespace

Result<std::unique_ptr<Engine>> open_engine(const OpenOptions& options, OpenedRails& opened,
                                            Places places) {
  EngineOptions wanted;
  wanted.places = std::move(places);
  wanted.incarnation = {random_number(), random_number()};
  wanted.name = options.name;
  wanted.processes = fabric::host_processes();
  wanted.origin = wanted.processes->self();
  auto owned = std::make_unique<Owned>();
  owned->jobs = open_file_jobs();
  if (maps_memory(options)) owned->sharing = Sharing::open();
  if (moves_gpu_memory(options)) {
    const auto copies = std::make_shared<MultipathCopies>();
    owned->gpu = std::make_unique<GpuJobs>(copies);
    wanted.copy_paths = paths_of(copies);
  }
  if (!owned->can_tell()) return no_more_descriptors("what the engine waits by");
  std::vector<std::unique_ptr<Rail>> rails;
  for (size_t i = 0; i < opened.domains.size(); ++i) {
    BRAID_LET(rail, Rail::open(std::move(opened.domains[i]), wanted.incarnation,
                               opened.trust.secret, fabric::host_processes(), *owned));
    opened.descriptions[i].address = rail->address();
    rails.push_back(std::move(rail));
  }
  wanted.shares = open_shares(opened.descriptions);
  return std::make_unique<Engine>(std::move(owned), std::move(rails), opened.descriptions, wanted);
}

}  // namespace braid::transfer
