// Transfers by kernels whose relay has failed, or whose context has ended, while it may have held
// slices: those never land, and the gate would stay closed. They are carried again over the direct
// path, and then the gate is opened.
//
// Nobody knows which slices are missing, so all of a transfer is carried again, and that must not
// begin before the last kernel that moves bytes of it is through: the gate opens when the bytes are
// there, and a store that came later would hit memory that the program uses for something else. A
// transfer is through when all its slices have been taken and its counters stand still: blocks that
// live land a slice in far less time, and whoever begins later finds nothing to take.
//
// By a kernel, not by the driver's copy: that is refused for memory which the program has freed
// behind the transfer, and would be one call for each piece of a batch.
//
// Not thread-safe: the owning Target's lock guards it. Errors: what the driver refuses is asked for
// again at the next step; for good, and the target's context is ended with a sticky error, so that
// the program does not go on with bytes that never came. MMA has no such case: its slices are the
// scheduler's.
#pragma once

#include <array>
#include <cstdint>

#include "cuda/driver.h"
#include "multipath/endpoint.h"
#include "multipath/lane.h"
#include "multipath/list_ring.h"
#include "multipath/ticket.h"

namespace braid::multipath {

class Rescue {
 public:
  /// What is passed must outlive it.
  Rescue(const cuda::Driver& driver, Endpoint& target, TicketPool& tickets, ListRing& lists,
         LaneSet& lanes)
      : driver_(driver), target_(target), tickets_(tickets), lists_(lists), lanes_(lanes) {}
  ~Rescue();
  Rescue(const Rescue&) = delete;
  Rescue& operator=(const Rescue&) = delete;

  /// No ticket that is free has counts that are unread. One look at the orphans; those that have
  /// landed, or are being carried again with another ticket, are retired and orphans no more. Waits
  /// for nothing. Call it every so often; `now_ns` only has to go on.
  void step(uint64_t now_ns);

 private:
  struct Progress {
    uint32_t generation = 0;
    uint32_t next = 0;
    uint32_t done = 0;
    uint32_t left = 0;
    bool operator==(const Progress&) const = default;
  };
  struct Watched {
    Progress progress;
    uint64_t since_ns = 0;
  };

  CUstream pick_stream();
  bool is_read();
  void judge(Ticket& orphan, Watched& watched, uint64_t now_ns, CUstream stream);
  bool carry(Ticket& orphan, CUstream stream);

  const cuda::Driver& driver_;
  Endpoint& target_;
  TicketPool& tickets_;
  ListRing& lists_;
  LaneSet& lanes_;
  // Made when they are first needed: a context has few hardware queues.
  CUstream stream_ = nullptr;
  CUevent read_ = nullptr;  ///< the counters that were asked for last have come
  bool is_reading_ = false;
  std::array<Watched, kTickets> watched_{};  // by ticket
};

}  // namespace braid::multipath
