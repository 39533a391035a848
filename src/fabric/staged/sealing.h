// The seals of the messages between staged domains (fabric/seal.h). A message that `open` returns
// was made with the secret and for this domain, and has not come before.
//
// Layout: the message; the number of the line that it was sent over; its sequence there; the seal.
// The seal covers the receiver's place too, which both sides know: what was recorded on the way to
// one domain is of no use at another.
#pragma once

#include <cstddef>
#include <cstdint>
#include <unordered_map>
#include <utility>
#include <vector>

#include "fabric/domain.h"
#include "fabric/policy/replay_window.h"
#include "fabric/seal.h"

namespace braid::fabric::staged {

class Sealing {
 public:
  /// `place`: where this domain receives messages.
  Sealing(Secret secret, Bytes place)
      : secret_(std::move(secret)), place_(place.begin(), place.end()) {}

  bool has_secret() const { return secret_.is_set(); }
  /// `line`: a random number of the sender's. Sequences count from 1.
  void seal(std::vector<std::byte>& message, Bytes receiver, uint64_t line,
            uint64_t sequence) const;
  /// The message without its trailer. Empty: it was dropped, and counted.
  Bytes open(Bytes message);

  void count_malformed() { ++rejections_.malformed; }
  void count_unsealed() { ++rejections_.unauthenticated; }
  const Rejections& rejections() const { return rejections_; }

 private:
  /// More than the messages that a line has under way (kSendsOfLine), which alone overtake each
  /// other.
  using LineWindow = ReplayWindow<64>;
  static constexpr size_t kLinesMax = 4096;

  LineWindow& window_of(uint64_t line);

  const Secret secret_;
  const std::vector<std::byte> place_;
  Rejections rejections_;
  /// By the sender's number of the line: those that were heard lately, at most kLinesMax, and the
  /// kLinesMax before them. So lines of peers that have gone are forgotten at last. Without the
  /// secret nobody adds to them.
  std::unordered_map<uint64_t, LineWindow> windows_, earlier_windows_;
};

}  // namespace braid::fabric::staged
