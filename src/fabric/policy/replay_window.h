// Remembers which messages of a peer have come: each is accepted once, in any order. A message that
// is older than the window counts as one that has come.
// Source: RFC 4303, 3.4.3, and RFC 6479.
#pragma once

#include <bitset>
#include <cstdint>

namespace braid::fabric {

class ReplayWindow {
 public:
  /// A message that as many later ones overtake is lost, so it is more than wait on one rail while
  /// another one delivers. 4 KiB for each peer.
  static constexpr uint64_t kMessages = 1 << 15;

  /// Sequences count from 1. False: this one has come, or is too old to tell.
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
    return true;
  }

 private:
  std::bitset<kMessages> seen_;
  uint64_t newest_ = 0;
};

}  // namespace braid::fabric
