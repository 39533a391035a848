#include "multipath/submitter.h"

#include "cuda/queries.h"
#include "multipath/classify.h"

namespace braid::multipath {

Outcome Submitter::submit(const Batch& batch, Intent intent) {
  const uint64_t size_bytes = size_of(batch);
  if (peers_.is_off()) return Verdict::kSwitchedOff;
  if (!planner_.may_gain(batch, size_bytes)) return Verdict::kBelowThreshold;
  if (relays_.all() == 0) return Verdict::kNoRelay;
  if (cuda::is_capturing(driver_, batch.stream)) return Verdict::kCapturing;
  const Classification memory = classify(driver_, batch, relays_.all());
  if (memory.verdict != Verdict::kAccelerated) return memory.verdict;
  const ContextRegistry::FoundTarget found = registry_.find_target(memory, batch.stream);
  if (found.target() == nullptr) return found.verdict();
  return found.target()->submit(batch, size_bytes, path_limit_.load(std::memory_order_relaxed),
                                memory, intent);
}

std::vector<CopyPath> Submitter::paths_of(int gpu, Direction direction, uint64_t size_bytes) {
  if (peers_.is_off() || gpu < 0 || gpu >= relays_.gpu_count() || relays_.of(gpu) == 0) return {};
  const ContextRegistry::FoundTarget found = registry_.find_target_on(gpu);
  if (found.target() == nullptr) return {};
  return found.target()->paths_of(direction, size_bytes,
                                  path_limit_.load(std::memory_order_relaxed));
}

}  // namespace braid::multipath
