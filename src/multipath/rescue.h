// Transfers by kernels whose relay has failed, or whose context has ended, while it may have held
// slices: those never land, and the gate would stay closed. They are copied again over the direct
// path, and the gate is opened.
//
// Nobody knows which slices are missing, so all of a transfer is copied again, and that must not
// begin before the last kernel that moves bytes of it is through: the gate opens when the copies
// have ended, and a store that came later would hit memory that the program uses for something
// else. A transfer is through when all its slices have been taken and its counters stand still:
// blocks that live land a slice in far less time, and whoever begins later finds nothing to take.
//
// Not thread-safe: the owning Target's lock guards it. Errors: what the driver refuses is asked for
// again at the next step; for good, and the target's context is ended with a sticky error, so that
// the program does not go on with bytes that never came. Source: MMA section 3.3 has no such case.
#pragma once

#include <array>
#include <cstdint>

#include "cuda/driver.h"
#include "multipath/endpoint.h"
#include "multipath/ticket.h"

namespace braid::multipath {

class Rescue {
 public:
  /// What is passed must outlive it.
  Rescue(const cuda::Driver& driver, const Endpoint& target, TicketPool& tickets)
      : driver_(driver), target_(target), tickets_(tickets) {}
  ~Rescue();
  Rescue(const Rescue&) = delete;
  Rescue& operator=(const Rescue&) = delete;

  /// One look at the orphans among the tickets (`Ticket::is_orphan`); those that have landed, or
  /// are being copied again, are retired. Waits for nothing. Call it every so often.
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

  bool open_stream();
  void judge(Ticket& ticket, Watched& watched, uint64_t now_ns);
  CUresult carry(const Ticket& ticket);
  CUresult copy_again(const SlicedBytes& bytes);

  const cuda::Driver& driver_;
  const Endpoint& target_;
  TicketPool& tickets_;
  CUstream stream_ = nullptr;  // made when it is first needed: a context has few hardware queues
  bool has_read_ = false;
  std::array<Watched, kTickets> watched_{};  // by ticket
};

}  // namespace braid::multipath
