// Doors of a domain on libfabric (Domain::open_door): a station for each peer, which only receives.
// Only the door's station knows the key of memory that was granted through the door. If the
// provider chooses the keys, memory that all doors share could not have one key in several
// libfabric domains. The doors are then in the libfabric domain of the domain's own station, and
// every key holds at all doors.
#pragma once

#include <deque>
#include <list>
#include <optional>
#include <unordered_map>
#include <vector>

#include "fabric/ofi/connections.h"
#include "fabric/ofi/robust_locks.h"
#include "fabric/ofi/sleepers.h"
#include "fabric/ofi/spare_station.h"
#include "fabric/ofi/station.h"

namespace braid::fabric::ofi {

/// Decides how often a queue is polled.
class Pace {
 public:
  bool is_quiet() const { return looks_in_vain_ >= kQuietAfterLooks; }
  /// Whether this poll may be left out. `is_busy`: other queues have traffic.
  bool waits(bool is_busy) { return is_busy && is_quiet() && ++turns_ % kQuietEveryTurns != 0; }
  void looked(size_t come) { looks_in_vain_ = come > 0 ? 0 : looks_in_vain_ + 1; }

 private:
  static constexpr uint32_t kQuietAfterLooks = 256;
  static constexpr uint32_t kQuietEveryTurns = 32;
  uint32_t looks_in_vain_ = 0;
  uint32_t turns_ = 0;
};

class Doors {
 public:
  /// All arguments outlive this object. `calls` may be null.
  Doors(const Provider& provider, fid_domain& common, RobustCalls* calls, Sleepers& sleepers,
        Connections& connections)
      : provider_(provider),
        common_(common),
        calls_(calls),
        sleepers_(sleepers),
        connections_(connections) {}
  ~Doors();
  Doors(const Doors&) = delete;
  Doors& operator=(const Doors&) = delete;

  Result<uint32_t> open();
  Bytes address(uint32_t door) const { return doors_.at(door)->station.name; }
  /// Shuts the door off. `poll` reads what has come already, and then closes the door. If the
  /// provider needs it (Quirks::reads_before_close), this call reads what has come, and appends it
  /// to `come`.
  void close(uint32_t door, std::deque<Completion>& come);
  /// For a door that was closed.
  Drain drain(uint32_t door) const { return doors_.contains(door) ? Drain::kEnding : Drain::kOver; }

  /// `region` is the caller's number for it. `key`: none: a new one.
  Result<RemoteRange> add_region(uint32_t door, uint32_t region, MutableBytes memory,
                                 std::optional<uint64_t> key);
  /// A region of a closing door is removed together with the door.
  void remove_region(uint32_t door, uint32_t region);
  /// Makes memory reachable through every door, with one key.
  Status share(uint32_t region, MutableBytes memory, uint64_t key);
  void unshare(uint32_t region);

  /// Makes progress, and fills the front of `completions`. `is_busy`: other queues have traffic, so
  /// quiet doors may be left out.
  size_t poll(std::span<Completion> completions, bool is_busy);

 private:
  struct Door {
    uint32_t number;
    Station station;  // closed after the memory
    std::unordered_map<uint32_t, Owned<fid_mr>> regions;
    Pace pace;
    uint32_t closing_looks = 0;
    bool is_closing = false;
    std::vector<Connection> connections;  // these must end first

    bool is_quiet() const { return !is_closing && pace.is_quiet(); }
  };
  struct Shared {
    MutableBytes memory;
    uint64_t key;
  };

  Result<Station> open_station();
  Status share_with(Door& door, uint32_t region, const Shared& shared);
  size_t look(Door& door, std::span<Completion> completions);
  size_t look_at_quiet_ones(std::span<Completion> completions, bool is_busy);
  void shut(uint32_t number);
  void read_what_has_come(Door& door, std::deque<Completion>& come);
  void end_closed();

  const Provider& provider_;
  fid_domain& common_;
  RobustCalls* calls_;
  Sleepers& sleepers_;
  Connections& connections_;
  SpareStation spare_{provider_};
  std::list<Door> order_;  // in the order of polling; it rotates
  std::unordered_map<uint32_t, std::list<Door>::iterator> doors_;
  std::unordered_map<uint32_t, Shared> shared_;
  size_t closing_ = 0;
  uint32_t next_ = 0;
};

}  // namespace braid::fabric::ofi
