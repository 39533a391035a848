// The versions of a protocol that one side speaks. Two sides speak the newest version that both
// know, so a newer side still speaks the older version with an older side.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>

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

/// The error of a peer that speaks no version that this side speaks. A process speaks the same
/// versions for as long as it lives, so to try again is of no use.
inline Status other_version(std::string what, std::string remedy) {
  constexpr int kOtherVersion = 1;  // the only Status::cause of the fabric
  return Status::error(std::move(what), std::move(remedy)).with_cause(kOtherVersion);
}
inline bool is_other_version(const Status& status) { return status.cause() != 0; }

/// `what`: the verb and object that both share, as in "stages memory of GPUs".
inline Status no_common_version(const std::string& what, const std::string& theirs,
                                const Versions& ours) {
  return other_version("the peer " + what + " by " + theirs + ", and this engine by " + ours.text(),
                       "Use the same version of braid on both sides");
}

}  // namespace braid::fabric
