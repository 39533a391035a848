// Remembers which messages of a peer have come: each is accepted once, in any order. A message that
// is older than the window counts as one that has come. Sequences count from 1 without gaps, so it
// also shows which message is missing.
// Source: RFC 4303, 3.4.3, and RFC 6479.
#pragma once

#include <bitset>
#include <cstdint>

namespace braid::fabric {

/// A message that `kCount` later ones overtake is lost. Takes a bit for each.
template <uint64_t kCount>
class ReplayWindow {
 public:
  static constexpr uint64_t kMessages = kCount;

  /// False: this one has come, or is too old to tell.
  bool accept(uint64_t sequence) {
    if (sequence == 0 || sequence + kMessages <= newest_) return false;
    for (; newest_ < sequence && sequence - newest_ <= kMessages; ++newest_)
      seen_.reset((newest_ + 1) % kMessages);
    if (newest_ < sequence) {
      seen_.reset();
      newest_ = sequence;
    }
    if (seen_[sequence % kMessages]) return false;
    seen_.set(sequence % kMessages);
    // One that the window has left behind is missing for good.
    while (next_ <= newest_ && newest_ - next_ < kMessages && seen_[next_ % kMessages]) ++next_;
    return true;
  }
  uint64_t newest() const { return newest_; }
  /// The oldest message that has not come although a later one has; 0: there is none.
  uint64_t missing() const { return next_ <= newest_ ? next_ : 0; }

 private:
  std::bitset<kMessages> seen_;
  uint64_t newest_ = 0;
  uint64_t next_ = 1;  // all before it have come
};

}  // namespace braid::fabric
