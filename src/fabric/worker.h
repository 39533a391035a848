// The worker moves bytes: each rail pulls as many slices of transfers as it has room for, and the
// slices' completions add up to the transfer's ticket. It owns no thread: the caller of `step`
// drives it, a thread or the simulator. Not safe for concurrent use.
// Source: 3.4 of the paper.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <unordered_map>
#include <vector>

#include "fabric/domain.h"
#include "fabric/policy/plan.h"
#include "fabric/policy/rail_health.h"
#include "fabric/policy/rail_range.h"
#include "fabric/policy/recent_rate.h"
#include "fabric/slot_map.h"

namespace braid::fabric {

enum class TicketState : uint8_t {
  kPending,
  kDone,         ///< visible at the target, and the source is free again
  kFailed,       ///< nothing of it reads the source any more; some of it may have landed
  kQuarantined,  ///< failed by its deadline, but the network still holds its source; later kFailed
};

enum class Failure : uint8_t { kNone, kDeadline, kNetwork, kRevoked, kDisconnected, kCancelled };

/// A local region on every rail.
struct Source {
  MutableBytes memory;
  std::vector<uint32_t> rails;
};

/// A peer over one rail.
struct Route {
  uint32_t peer = 0;  ///< its index in the rail's domain
  RailHealth health;
  uint64_t writes = 0;  ///< slices that have completed well, and their bytes
  uint64_t bytes = 0;
  uint64_t failures = 0;  ///< slices and messages
  uint64_t under_way = 0;
  uint64_t under_way_bytes = 0;
  RecentRate rate;
};

/// A peer's memory on every rail.
struct Target {
  std::vector<Route>* routes = nullptr;  ///< the peer's, by rail
  std::vector<RemoteRange> rails;
  uint64_t size_bytes = 0;
  bool gathers = true;     ///< the peer counts all slices of a write of several
  uint64_t live = 0;       ///< transfers that have not ended
  uint64_t under_way = 0;  ///< postings that have not completed
  bool is_clean = true;    ///< none has failed
};

struct Transfer {
  /// The caller's numbers of the things that the transfer uses.
  struct Holds {
    uint64_t region = 0;
    uint64_t target = 0;
    uint64_t peer = 0;
    uint64_t ticket = 0;  // of a group, of which this is a part
    size_t part = 0;
  };

  Plan plan;
  const Source* source = nullptr;
  Target* target = nullptr;
  std::optional<uint32_t> immediate;
  RailRange rails;        ///< it goes over these alone, also if they are down
  bool is_probe = false;  ///< of the first of its rails
  Holds holds;

  uint64_t next_slice = 0;
  uint64_t under_way = 0;
  Failure failure = Failure::kNone;
  bool is_late = false;  ///< its deadline has passed
  bool has_ended = false;
  bool is_forgotten = false;  ///< nobody asks for it any more
};

class Worker {
 public:
  /// Called within the worker's own calls, such as `step` and `stop`.
  class Listener {
   public:
    virtual void transfer_ended(uint64_t id, const Transfer& transfer) = 0;
    /// The immediate has arrived `count` times at once.
    virtual void immediate_arrived(uint32_t immediate, uint32_t count) = 0;
    /// A rail to the transfer's peer has become suspect, and needs a probe.
    virtual void route_suspected(const Transfer& transfer) = 0;
    /// A completion of a posting that the worker did not make: its context has kForeign.
    virtual void foreign_completed(size_t rail, const Completion& completion) = 0;

   protected:
    ~Listener() = default;
  };
  static constexpr uint64_t kForeign = uint64_t{1} << 63;

  Worker(std::vector<std::unique_ptr<Domain>> rails, Listener& listener);

  size_t rail_count() const { return rails_.size(); }
  Domain& rail(size_t index) { return *rails_[index].domain; }
  const Domain& rail(size_t index) const { return *rails_[index].domain; }
  /// How many immediates have arrived over this rail.
  uint64_t immediates(size_t rail) const { return rails_[rail].immediates; }

  /// `source` and `target` stay until the transfer has ended.
  uint64_t start(Transfer&& transfer);
  /// Posts no more of it. It ends once nothing of it is under way.
  void stop(uint64_t id, Failure why);
  void stop_all(const Target& target, Failure why);
  /// All to the peer with these routes.
  void stop_all(const std::vector<Route>& routes, Failure why);
  TicketState state(uint64_t id) const;
  Failure failure(uint64_t id) const;
  bool is_known(uint64_t id) const { return transfers_.find(id) != nullptr; }
  bool has_ended(uint64_t id) const { return !is_known(id) || transfers_.find(id)->has_ended; }
  void forget(uint64_t id);
  /// To be called before a peer's routes are destroyed. All transfers to it have ended.
  void forget_routes(const std::vector<Route>& routes);

  /// True if anything was posted, copied, or has completed.
  bool step(uint64_t now_ns);
  /// Posts what the rails have room for.
  bool post() { return fill(); }
  bool is_idle() const { return postings_.size() == 0 && turns_.empty(); }
  /// Some slices are not posted yet.
  bool waits_for_room() const { return !turns_.empty(); }

 private:
  struct Rail {
    std::unique_ptr<Domain> domain;
    uint64_t under_way = 0;
    uint64_t under_way_bytes = 0;
    uint64_t immediates = 0;
    /// A peer with nothing under way on the rail always has room for one posting, since silent
    /// peers may hold all of the rail's room.
    bool has_room(const Route& route) const;
  };
  struct Posting {
    uint64_t transfer;
    uint32_t rail;
    uint32_t slices;
    uint64_t size_bytes;
  };
  /// Slices that go as one write.
  struct Gathered {
    uint64_t transfer = 0;
    uint32_t slices = 0;
    uint64_t size_bytes = 0;
    std::vector<Segment> segments;
  };
  /// Writes to one target that are posted together.
  struct Batch {
    const Source* source = nullptr;
    Target* target = nullptr;
    uint64_t size_bytes = 0;
    size_t count = 0;
    std::vector<Gathered> gathered;  ///< the first `count`; the others keep their memory
    std::vector<Write> writes;
  };

  /// Transfers to one peer with slices to post. It stays when it is empty: making one costs more
  /// than a small write.
  struct PeerQueue {
    const std::vector<Route>* routes = nullptr;  ///< the peer's
    std::deque<uint64_t> transfers;
    bool has_turn = false;
    uint64_t full_in_fill = 0;  ///< the last fill that found the wire's queue to the peer full
  };

  void enqueue(uint64_t id, const Transfer& transfer);
  bool fill();
  bool fill(size_t rail);
  bool post_next(size_t rail, PeerQueue& queue);
  void suspect_late(uint64_t id, const Transfer& transfer);
  void make_batch(size_t rail, PeerQueue& queue);
  bool add_to_batch(size_t rail, uint64_t id, Transfer& transfer);
  void gather(size_t rail, const Transfer& transfer, Gathered& gathered) const;
  Write write_of(size_t rail, const Transfer& transfer, const Gathered& gathered);
  void posted(size_t rail, const Gathered& gathered);
  void give_back(PeerQueue& queue, const Gathered& gathered);
  bool poll();
  void posting_ended(const Completion& completion);
  void end_if_drained(uint64_t id, Transfer& transfer);

  std::vector<Rail> rails_;
  Listener& listener_;
  SlotMap<Transfer> transfers_;
  SlotMap<Posting> postings_;
  std::unordered_map<const std::vector<Route>*, PeerQueue> queues_;
  std::deque<PeerQueue*> turns_;  // those with transfers
  uint64_t fills_ = 0;
  size_t first_rail_ = 0;
  uint64_t now_ns_ = 0;
  std::vector<Completion> completions_;  // of one poll
  Batch batch_;                          // of one posting
};

}  // namespace braid::fabric
