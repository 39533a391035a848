// How a relay's block detects that its link also carries other traffic, and how long the link's
// relays rest then (MMA section 3.4.2, contention with background traffic). Pure, and called by one
// thread of a block; device code and twin share it.
//
// All blocks count the bytes that they move over a link, so that braid's other transfers belong to
// its pace and are not congestion. On a quiet server the other links also slow a link, since host
// memory carries them all. So the usual pace is kept by the number of the transfer's paths, and
// separately for times when the link also moves bytes the other way.
#pragma once

#include <cstdint>

#include "cuda/kernels/host_device.h"

namespace braid::cuda {

/// A stream of other copies doubles the time of a link. Four links that share host memory slow it
/// by at most 1.45 (4xH200), which must not make relays rest.
inline constexpr float kCongested = 1.6f;
/// A link is used both ways if the other direction moves more than this part of the bytes (1 /
/// value).
inline constexpr uint32_t kBothWaysPart = 4;
/// The length of a sample: this many slices of one block, and as many bytes over the link. In
/// shorter samples the slices of other blocks dominate.
inline constexpr uint32_t kSampleSlices = 8;
inline constexpr uint32_t kSampleKb = 1024;
/// No sample counts as unusual before this many.
inline constexpr uint32_t kSamplesToKnow = 32;
/// How fast the usual pace follows the samples. While congested it follows the clock instead, so
/// that a link that has become slow for good is the usual one after some seconds.
inline constexpr float kPaceLearns = 1.0f / 8;
inline constexpr float kPaceForgetsInNs = 10e9f;
/// Congested samples in a row before a link rests. One more than a returning relay of another
/// process takes to check whether the link is free, so that of two that meet one stays.
inline constexpr uint32_t kSamplesToRest = 3;
/// The rest of a congested link, in samples' times. It varies, also between two engines: otherwise
/// engines that began to rest together would come back together.
inline constexpr uint32_t kLeastRest = 4;
inline constexpr uint32_t kRestSpread = 8;
inline constexpr uint32_t kUsualRest = kLeastRest + kRestSpread / 2;
inline constexpr uint64_t kMostRestNs = 1'000'000;

/// The pace of a link that is braid's alone, as its relays have measured it.
struct UsualPace {
  float ns_per_kb;
  uint32_t samples;  ///< at most kSamplesToKnow
};

/// The bytes that blocks of one GPU have moved over its link; wraps.
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

/// True if a link that rests until `until_ns` still does. Never longer than the limit, even if the
/// clock jumps.
BRAID_HOST_DEVICE inline bool is_at_rest(uint64_t now_ns, uint64_t until_ns) {
  return until_ns - now_ns - 1 < kMostRestNs;
}

/// Watches a link for one relay block.
class LinkWatch {
 public:
  /// `occupancy`: an address that differs between the engines of a process; between processes only
  /// the time may differ. Only its offset in a large page is used: the rest changes in every run.
  BRAID_HOST_DEVICE explicit LinkWatch(uint64_t occupancy)
      : salt_(static_cast<uint32_t>(occupancy & 0xfffff)) {}

  /// The block has paused: paces mean nothing until pipelines are full again.
  BRAID_HOST_DEVICE void restart() {
    slices_ = 0;
    has_begun_ = false;
  }

  /// Counts a slice. True: it is time to call `sample`.
  BRAID_HOST_DEVICE bool count_slice() { return ++slices_ >= kSampleSlices; }

  /// True if a sample has ended now. The next one begins.
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

  /// How long the link's relays rest after this sample, which has just ended; pass `usual` as it
  /// was before the sample. A relay that has rested and finds the link unchanged rests again at
  /// once.
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
