#include "transfer/library/ended_batches.h"

#include <algorithm>
#include <utility>

namespace braid::transfer {

void EndedBatches::begin_to_tell() {
  const std::lock_guard lock(mutex_);
  is_told_ = true;
}

void EndedBatches::add(uint64_t batch, Outcomes outcomes) {
  const std::lock_guard lock(mutex_);
  outcomes_.emplace(batch, std::move(outcomes));
  if (!is_told_) return;
  untaken_.push_back(batch);
  signal();
}

bool EndedBatches::contains(uint64_t batch) const {
  return read(batch, [](const Outcomes&) {});
}

bool EndedBatches::forget(uint64_t batch) {
  const std::lock_guard lock(mutex_);
  if (outcomes_.erase(batch) == 0) return false;
  if (std::erase(untaken_, batch) > 0) signal();
  return true;
}

std::vector<uint64_t> EndedBatches::take(size_t count_max) {
  const std::lock_guard lock(mutex_);
  const auto end = untaken_.begin() + static_cast<ptrdiff_t>(std::min(count_max, untaken_.size()));
  const std::vector<uint64_t> taken(untaken_.begin(), end);
  untaken_.erase(untaken_.begin(), end);
  signal();
  return taken;
}

}  // namespace braid::transfer
