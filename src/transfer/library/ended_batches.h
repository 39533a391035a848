// Batches that have ended and are not forgotten. An engine may be busy for a millisecond on behalf
// of others; who asks for an outcome does not wait for that.
#pragma once

#include <cstdint>
#include <deque>
#include <mutex>
#include <unordered_map>
#include <vector>

#include "transfer/engine_types.h"
#include "transfer/library/event_descriptor.h"

namespace braid::transfer {

/// May be used by several threads at once.
class EndedBatches {
 public:
  using Outcomes = std::vector<RequestStatus>;

  /// `events` is readable for Source::kBatches while `take` has something to return.
  explicit EndedBatches(EventDescriptor& events) : events_(events) {}

  /// `take` returns what ends from now on.
  void begin_to_tell();
  void add(uint64_t batch, Outcomes outcomes);
  bool contains(uint64_t batch) const;
  /// Calls `read` with the outcomes. False: there is no such batch here.
  template <typename Read>
  bool read(uint64_t batch, const Read& read) const {
    const std::lock_guard lock(mutex_);
    const auto found = outcomes_.find(batch);
    if (found == outcomes_.end()) return false;
    read(found->second);
    return true;
  }
  /// False: there is no such batch here.
  bool forget(uint64_t batch);
  /// Batches that have ended, each once, the oldest first. They stay here.
  std::vector<uint64_t> take(size_t count_max);

 private:
  void signal() { events_.set(EventDescriptor::Source::kBatches, !untaken_.empty()); }

  mutable std::mutex mutex_;
  std::unordered_map<uint64_t, Outcomes> outcomes_;
  bool is_told_ = false;
  std::deque<uint64_t> untaken_;  // while `is_told_`
  EventDescriptor& events_;
};

}  // namespace braid::transfer
