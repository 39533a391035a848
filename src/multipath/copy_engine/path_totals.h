// What each path has carried, added up over transfers that have ended. The mover's lock guards it.
#pragma once

#include <vector>

#include "multipath/copy_engine/task.h"
#include "multipath/engine.h"

namespace braid::multipath::copy_engine {

class PathTotals {
 public:
  /// Room for the paths between so many contexts: `add` takes no memory.
  void reserve(size_t contexts) { counts_.reserve(contexts * kMaxGpus * 2); }
  void add(const Task& task);
  const std::vector<PathCount>& counts() const { return counts_; }

 private:
  std::vector<PathCount> counts_;
};

}  // namespace braid::multipath::copy_engine
