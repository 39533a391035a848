// How a relay's block finds that its link also carries what is not braid's, and for how long the
// link's relays rest then (MMA section 3.4.2, contention with background traffic). Pure, and called
// by one thread of a block; device code and twin share it.
//
// All blocks count what they move over a link, so that braid's other transfers on it are part of
// its pace and not congestion. What else slows a link on a quiet server are the other links, since
// host memory carries them all: the usual pace is kept by the number of the transfer's paths, and
// apart for times when the link moves bytes the other way too.
#pragma once

#include <cstdint>

#include "cuda/kernels/host_device.h"

namespace braid::cuda {

/// A stream of copies beside braid's makes a link take twice as long; four links that share host
/// memory, at most 1.45 times (4xH200): nobody may rest for that.
inline constexpr float kCongested = 1.6f;
/// A link is used both ways while the other direction moves more than one part in so many.
inline constexpr uint32_t kBothWaysPart = 4;
/// A sample: as many slices of one block, and as much over the link. Shorter ones see the others'
/// slices come and go.
inline constexpr uint32_t kSampleSlices = 8;
inline constexpr uint32_t kSampleKb = 1024;
/// Nothing is unusual before this many samples.
inline constexpr uint32_t kSamplesToKnow = 32;
/// How fast the usual pace follows what is seen. While congested it follows the clock instead, so
/// that a link that has become slow for good is the usual one after some seconds.
inline constexpr float kPaceLearns = 1.0f / 8;
inline constexpr float kPaceForgetsInNs = 10e9f;
/// Congested samples in a row before a link rests: one more than a relay of another process takes
/// that comes back to see whether the link is free, so that of two that meet one stays.
inline constexpr uint32_t kSamplesToRest = 3;
/// The period that a congested link waits, in samples' times. Not always the same, nor the same for
/// two engines: else those that have begun to rest together would come back together.
inline constexpr uint32_t kLeastRest = 4;
inline constexpr uint32_t kRestSpread = 8;
inline constexpr uint32_t kUsualRest = kLeastRest + kRestSpread / 2;
inline constexpr uint64_t kMostRestNs = 1'000'000;

/// What a link takes when it is braid's alone, as far as its relays have seen.
struct UsualPace {
  float ns_per_kb;
  uint32_t samples;  ///< at most kSamplesToKnow
};

/// What blocks of one GPU have moved over its link; wraps.
struct MovedKb {
  uint32_t this_way;
  uint32_t other_way;
};

/// One direction of a link during a sample.
struct LinkSample {
  uint64_t took_ns;
  uint32_t moved_kb;
  bool is_both_ways;  ///< the other direction moved too

  BRAID_HOST_DEVICE float ns_per_kb() const {
    return static_cast<float>(took_ns) / static_cast<float>(moved_kb);
  }
};

BRAID_HOST_DEVICE inline bool is_congested(const UsualPace& usual, const LinkSample& sample) {
  return usual.samples == kSamplesToKnow && sample.ns_per_kb() > kCongested * usual.ns_per_kb;
}

BRAID_HOST_DEVICE inline UsualPace learned(const UsualPace& usual, const LinkSample& sample) {
  const float seen = sample.ns_per_kb();
  if (usual.samples == 0) return {seen, 1};
  if (is_congested(usual, sample)) {
    const float rested_ns = static_cast<float>(sample.took_ns) * (1 + kUsualRest);
    return {usual.ns_per_kb * (1 + rested_ns * (1 / kPaceForgetsInNs)), usual.samples};
  }
  const uint32_t samples = usual.samples < kSamplesToKnow ? usual.samples + 1 : kSamplesToKnow;
  return {usual.ns_per_kb + (seen - usual.ns_per_kb) * kPaceLearns, samples};
}

/// Whether a link that rests until `until_ns` still does. Never for longer than the limit, whatever
/// has become of the clock.
BRAID_HOST_DEVICE inline bool is_at_rest(uint64_t now_ns, uint64_t until_ns) {
  return until_ns - now_ns - 1 < kMostRestNs;
}

/// One relay block's eye on its link.
class LinkWatch {
 public:
  /// `occupancy`: an address, which another engine of this process does not have; of two processes
  /// the time alone may differ. Only its offset in a large page: the rest of it is another in every
  /// run.
  BRAID_HOST_DEVICE explicit LinkWatch(uint64_t occupancy)
      : salt_(static_cast<uint32_t>(occupancy & 0xfffff)) {}

  /// The block has paused: until pipelines are full again, paces say nothing.
  BRAID_HOST_DEVICE void restart() {
    slices_ = 0;
    has_begun_ = false;
  }

  /// A slice more. True: it is time to ask for `sample`.
  BRAID_HOST_DEVICE bool count_slice() { return ++slices_ >= kSampleSlices; }

  /// True when a sample has ended now. Another one begins.
  BRAID_HOST_DEVICE bool sample(uint64_t now_ns, const MovedKb& moved, LinkSample& sample) {
    const uint32_t kb = moved.this_way - since_.this_way;
    const uint32_t other_kb = moved.other_way - since_.other_way;
    if (has_begun_ && kb < kSampleKb) {
      slices_ = 0;
      return false;
    }
    sample = {now_ns - since_ns_, kb, other_kb > kb / kBothWaysPart};
    const bool has_ended = has_begun_ && now_ns > since_ns_;
    since_ns_ = now_ns;
    since_ = moved;
    slices_ = 0;
    has_begun_ = true;
    return has_ended;
  }

  /// How long the link's relays rest for this sample, which has just ended; `usual` before it is
  /// learned from. Who has rested and finds the link as it was rests again at once.
  BRAID_HOST_DEVICE uint64_t rest_ns(const UsualPace& usual, const LinkSample& sample) {
    congested_ = is_congested(usual, sample) ? congested_ + 1 : 0;
    if (congested_ < kSamplesToRest) return 0;
    const uint32_t mixed = (static_cast<uint32_t>(since_ns_) ^ salt_) * 2654435761u;
    const uint64_t wanted_ns = sample.took_ns * (kLeastRest + (mixed >> 16) % kRestSpread);
    return wanted_ns < kMostRestNs ? wanted_ns : kMostRestNs;
  }

 private:
  uint32_t salt_;
  uint32_t slices_ = 0;
  bool has_begun_ = false;
  uint32_t congested_ = 0;  // samples in a row
  uint64_t since_ns_ = 0;
  MovedKb since_{};
};

}  // namespace braid::cuda
