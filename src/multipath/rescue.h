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
// again at the next step. If it refuses to carry a transfer for two seconds, the target's context
// is ended with a sticky error, so that the program does not go on with bytes that never came. MMA
// has no such case: its slices are the scheduler's.
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

  /// One look at the orphans; those that have landed, or are being carried again with the spare
  /// ticket, are retired and orphans no more. Waits for nothing. Call it every so often, when the
  /// counts of tickets that are free have been read; `now_ns` only has to go on.
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
    uint64_t since_ns = 0;  ///< it had been read by then
  };

  /// The counters of all tickets, as last asked for.
  struct Reading {
    CUevent arrived = nullptr;
    bool is_asked_for = false;
    uint64_t asked_ns = 0;
  };

  bool has_arrived(uint64_t now_ns);
  void ask(CUstream stream, uint64_t now_ns);
  CUstream pick_stream();
  void judge(Ticket& orphan, Watched& watched, uint64_t now_ns, CUstream stream);
  bool end(Ticket& orphan, uint64_t now_ns, CUstream stream);
  CUresult carry(Ticket& orphan, CUstream stream);

  const cuda::Driver& driver_;
  Endpoint& target_;
  TicketPool& tickets_;
  ListRing& lists_;
  LaneSet& lanes_;
  CUstream stream_ = nullptr;  // made when it is first needed: a context has few hardware queues
  size_t turn_ = 0;            // of the streams there are to choose from
  Reading reading_;
  std::array<Watched, kTickets> watched_{};  // by ticket
  Ticket* carried_ = nullptr;                // its bytes are on their way, its gate is still closed
  CUstream carrying_ = nullptr;              // and in this stream
  uint64_t refused_since_ns_ = 0;            // 0: the driver refuses nothing
};

}  // namespace braid::multipath
