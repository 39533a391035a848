// What the callback of a watcher has been told.
#pragma once

#include <cstdint>
#include <mutex>

#include "braid/fabric_watcher.h"

namespace braid::test {

class Told {
 public:
  FabricWatcher::Callback callback() {
    return [this](uint64_t old_value, uint64_t value) {
      const std::lock_guard lock(mutex_);
      is_chained_ = is_chained_ && old_value == latest_ && value != old_value;
      latest_ = value;
      ++count_;
    };
  }
  uint64_t latest() {
    const std::lock_guard lock(mutex_);
    return latest_;
  }
  uint64_t count() {
    const std::lock_guard lock(mutex_);
    return count_;
  }
  /// Each began where the one before ended.
  bool is_chained() {
    const std::lock_guard lock(mutex_);
    return is_chained_;
  }

 private:
  std::mutex mutex_;
  uint64_t latest_ = 0;
  uint64_t count_ = 0;
  bool is_chained_ = true;
};

}  // namespace braid::test
