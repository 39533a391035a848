// Groups of peers, and tickets of many parts: one ticket stands for a scatter or a barrier, and has
// a part for each member. State only: the engine starts and stops transfers. Not synchronised.
// Source: 3.3 of the paper (add_peer_group, submit_scatter, submit_barrier).
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <unordered_map>
#include <vector>

#include "fabric/slot_map.h"
#include "fabric/worker.h"

namespace braid::fabric {

struct GroupMember {
  uint64_t peer = 0;
  uint64_t target = 0;           ///< memory of the peer's, for scatters; 0: none
  uint32_t immediate_there = 0;  ///< this engine sends it to the peer at a barrier
  uint32_t immediate_here = 0;   ///< the peer sends it to this engine; both 0: no barriers
};

/// Each member counts the immediates of every other member separately. So a barrier knows which
/// members are missing, and a member that comes twice does not count for another.
struct Group {
  std::vector<GroupMember> members;
  uint64_t round = 0;       ///< of the latest barrier
  uint64_t barrier = 0;     ///< the ticket of the barrier that is under way
  bool has_failed = false;  ///< members may then disagree about the round
};

class GroupTickets {
 public:
  /// Tickets of groups have this bit, others do not.
  static constexpr uint64_t kBit = uint64_t{1} << 63;
  static bool is_one(uint64_t ticket) { return (ticket & kBit) != 0; }

  struct Part {
    uint64_t peer = 0;
    uint64_t transfer = 0;
    bool has_ended = false;  // its transfer
    bool is_heard = true;    // the peer's immediate has come, or none is awaited
    Failure failure = Failure::kNone;

    bool is_over() const { return has_ended && (is_heard || failure != Failure::kNone); }
  };
  struct Ticket {
    uint64_t group = 0;
    std::vector<Part> parts;
    size_t open_parts = 0;
    bool is_late = false;
    bool is_forgotten = false;  // nobody asks for it any more
  };

  uint64_t add(uint64_t group, std::vector<Part> parts);
  const Ticket* find(uint64_t ticket) const { return tickets_.find(ticket & ~kBit); }
  void set_transfer(uint64_t ticket, size_t part, uint64_t transfer);
  void set_late(uint64_t ticket) { tickets_.find(ticket & ~kBit)->is_late = true; }
  bool has_ended(uint64_t ticket) const {
    return find(ticket) == nullptr || find(ticket)->open_parts == 0;
  }
  /// Erases the ticket at once if it has ended. Otherwise the engine calls erase_forgotten at its
  /// end.
  void forget(uint64_t ticket);
  void erase_forgotten(uint64_t ticket);

  // Each returns true if it has ended the ticket.

  bool transfer_ended(uint64_t ticket, size_t part, Failure failure);
  bool heard(uint64_t ticket, size_t part);
  /// The part fails, and does not wait for the peer's immediate.
  bool fail(uint64_t ticket, size_t part, Failure failure);

  TicketState state(uint64_t ticket) const;
  Failure failure(uint64_t ticket) const;
  /// The peers whose parts are not done yet, or have failed.
  std::vector<uint64_t> missing(uint64_t ticket) const;

 private:
  template <typename Change>
  bool change(uint64_t ticket, size_t part, const Change& change);

  SlotMap<Ticket> tickets_;
};

}  // namespace braid::fabric
