// The versions of a protocol that one side speaks. Two sides speak the newest version that both
// know, so a newer side still speaks the older version with an older side.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>

#include "base/status.h"

namespace braid::fabric {

struct Versions {
  uint8_t newest = 0;
  uint8_t oldest = 0;

  bool hold(uint8_t version) const { return version >= oldest && version <= newest; }
  std::optional<uint8_t> common_with(const Versions& other) const {
    const uint8_t both = std::min(newest, other.newest);
    return hold(both) && other.hold(both) ? std::optional(both) : std::nullopt;
  }
  /// "version 4", "versions 4 to 6"
  std::string text() const {
    const std::string last = std::to_string(newest);
    return oldest == newest ? "version " + last
                            : "versions " + std::to_string(oldest) + " to " + last;
  }
};

/// `what`: the verb and object that both share, as in "stages memory of GPUs".
inline Status no_common_version(const std::string& what, const std::string& theirs,
                                const Versions& ours) {
  return Status::error("the peer " + what + " by " + theirs + ", and this engine by " + ours.text(),
                       "Use the same version of braid on both sides");
}

}  // namespace braid::fabric
