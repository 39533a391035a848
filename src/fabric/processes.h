// Whether the processes of peers have ended. This is a seam: a kernel knows the processes of its
// own host only, and the simulator knows all. Used by one thread at a time.
#pragma once

#include <cstdint>
#include <optional>

#include "fabric/wire.h"

namespace braid::fabric {

class Processes {
 public:
  virtual ~Processes() = default;

  /// The origin that peers are told of this process.
  virtual Origin self() const = 0;
  /// From now on `next_ended` names the peer once its process has ended. It never does if the
  /// origin is on another host, or this process cannot see it.
  virtual void watch(uint64_t peer, const Origin& origin) = 0;
  virtual void forget(uint64_t peer) = 0;
  /// Does not block. It is called often.
  virtual std::optional<uint64_t> next_ended() = 0;
  /// Readable once `next_ended` has a peer to name. -1: nothing tells now; ask now and then.
  virtual int descriptor() const { return -1; }
};

}  // namespace braid::fabric
