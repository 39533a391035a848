// Whether the processes of peers have ended: a seam, since a kernel says it of its own host only,
// and the simulator of all. Whoever asks does so from one thread at a time.
#pragma once

#include <cstdint>
#include <optional>

#include "fabric/wire.h"

namespace braid::fabric {

class Processes {
 public:
  virtual ~Processes() = default;

  /// What peers are told of this process.
  virtual Origin self() const = 0;
  /// From now on `next_ended` names the peer once its process has ended. Nothing comes of an origin
  /// on another host, or that this process cannot see.
  virtual void watch(uint64_t peer, const Origin& origin) = 0;
  virtual void forget(uint64_t peer) = 0;
  /// Does not block, and is asked often.
  virtual std::optional<uint64_t> next_ended() = 0;
};

}  // namespace braid::fabric
