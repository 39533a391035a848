// The transfer engines of one user on this host, and how much each uses of which NIC: a table in
// shared memory (host/shared_table.h), /dev/shm/braid-transfer2-<uid>. Each engine has a row that
// it alone writes. A row takes no share once its owner has died (seen after 5 ms of silence) or has
// been stopped (after 50 ms); the next engine takes the row of a dead one.
//
// NICs are known by their addresses and the network namespace. All rails of an engine at one NIC,
// of whatever provider, use it together: their bytes are added up, and they divide the engine's
// part. Rails that stay within the host use no NIC. Engines of other users, and of containers with
// a /dev/shm of their own, are not seen. One thread at a time.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/status.h"
#include "host/shared_table.h"
#include "transfer/description.h"
#include "transfer/policy/share_pace.h"
#include "transfer/scheduler.h"

namespace braid::transfer {

/// How an engine uses a NIC now, for display.
struct RailLoad {
  size_t rail = 0;  ///< the first of the rails that were asked for which lies at this NIC
  int32_t process = 0;
  double gbps = 0;  ///< 10^9 bytes a second, over some 50 ms
  uint64_t delivered_bytes = 0;
  bool is_active = false;
};

class HostShares {
 public:
  static std::string usual_name();
  /// Takes a row in that table. `rails`: the engine's rails, in its order. An error: the engine
  /// does without shares, and no other engine sees it.
  static Result<std::unique_ptr<HostShares>> open(const std::string& name,
                                                  const std::vector<RailDescription>& rails);
  ~HostShares();

  /// The loads of all live engines in that table, in no order.
  static Result<std::vector<RailLoad>> loads(const std::string& name,
                                             const std::vector<RailDescription>& rails);

  /// If it is time, tells the others how the scheduler has used its rails, and sets the rails'
  /// shares. `numbers`: the scheduler's numbers, by rail.
  void look(Scheduler& scheduler, const std::vector<uint32_t>& numbers, uint64_t now_ns);
  /// When to look again; kNever: nothing is under way, or no other engine uses these NICs.
  uint64_t next_ns() const { return was_active_ && has_neighbours_ ? next_ns_ : kNever; }

 private:
  struct Row;
  struct SharedNic;
  /// One rail of this engine at a NIC.
  struct RailOfNic {
    size_t rail = 0;
    SharePace pace = {};  // measures its rate; the NIC's decides
    ShareTold told = {};
  };
  struct Nic {
    uint64_t key = 0;
    SharePace pace = {};
    std::vector<RailOfNic> rails;
  };
  HostShares(std::unique_ptr<SharedTable> table, std::vector<Nic> nics);
  static std::vector<Nic> nics_of(const std::vector<RailDescription>& rails);
  Row& row(size_t index) const;
  bool tell(Scheduler& scheduler, const std::vector<uint32_t>& numbers, uint64_t now_ns);
  RailShare hear(Nic& nic, uint64_t now_ns);
  RailShare part_of(const RailShare& all, const Nic& nic, size_t rail, uint64_t now_ns);

  std::unique_ptr<SharedTable> table_;
  std::vector<Nic> nics_;
  std::vector<ShareRow> rows_;  // kept between calls
  uint64_t next_ns_ = 0;
  bool was_active_ = false;
  bool has_neighbours_ = false;
};

}  // namespace braid::transfer
