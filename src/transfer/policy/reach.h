// Whether a way reaches the memory at both its ends, as far as its slices have shown. Memory may be
// registered where access to it fails: by an IOMMU, by a switch, by the limits of a container. Such
// an error breaks the connection, and so do a network that fails and a key that is no longer good.
// After those the next connection, with new keys, delivers. Pure.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>

namespace braid::transfer {

class Reach {
 public:
  static constexpr uint32_t kConnectionsMax = 4;
  static constexpr uint64_t kPauseNs = 10'000'000'000;
  static constexpr uint64_t kPauseMaxNs = 640'000'000'000;

  /// A slice has failed under way, over the connection of this number. The result: leave the way
  /// out for so long. Nothing: use it on.
  std::optional<uint64_t> failed(uint64_t connection) {
    if (connection == last_) return std::nullopt;  // many slices break with one connection
    last_ = connection;
    if (++connections_ < kConnectionsMax) return std::nullopt;
    connections_ = kConnectionsMax - 1;  // after the pause one failure is enough
    const uint64_t pause_ns = pause_ns_;
    pause_ns_ = std::min(2 * pause_ns_, kPauseMaxNs);
    return pause_ns;
  }

 private:
  uint64_t last_ = 0;
  uint32_t connections_ = 0;  // in a row on which a slice has failed and none was delivered
  uint64_t pause_ns_ = kPauseNs;
};

}  // namespace braid::transfer
