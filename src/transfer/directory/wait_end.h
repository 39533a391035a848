// The end of a wait, which another thread may bring forward.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>

namespace braid::transfer {

/// Of CLOCK_MONOTONIC.
class WaitEnd {
 public:
  /// `sooner_ns`: the wait ends then if that is earlier. Null: nobody brings it forward.
  WaitEnd(uint64_t end_ns, const std::atomic<uint64_t>* sooner_ns = nullptr)
      : end_ns_(end_ns), sooner_ns_(sooner_ns) {}

  uint64_t ns() const {
    return sooner_ns_ == nullptr ? end_ns_ : std::min(end_ns_, sooner_ns_->load());
  }
  /// How long a thread may wait before it looks at `ns` again: nothing wakes it when the end is
  /// brought forward.
  int look_ms(uint64_t now_ns) const {
    const uint64_t most_ms = sooner_ns_ == nullptr ? 60'000 : 20;
    const uint64_t end_ns = ns();
    return end_ns <= now_ns
               ? 0
               : static_cast<int>(std::min(most_ms, (end_ns - now_ns) / 1'000'000 + 1));
  }

 private:
  uint64_t end_ns_;
  const std::atomic<uint64_t>* sooner_ns_;
};

}  // namespace braid::transfer
