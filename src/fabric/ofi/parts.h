// The domain on libfabric. domain.cpp has its regions, peers and completions, and writer.cpp what
// it posts.
#pragma once

#include <rdma/fabric.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "fabric/domain.h"
#include "fabric/ofi/connections.h"
#include "fabric/ofi/doors.h"
#include "fabric/ofi/knocks.h"
#include "fabric/ofi/peer_addresses.h"
#include "fabric/ofi/peers.h"
#include "fabric/ofi/postings.h"
#include "fabric/ofi/robust_locks.h"
#include "fabric/ofi/shm_region.h"
#include "fabric/ofi/sleepers.h"
#include "fabric/ofi/station.h"

namespace braid::fabric::ofi {

inline constexpr size_t kSegmentsMax = 8;

class OfiDomain final : public Domain {
 public:
  static Result<std::unique_ptr<Domain>> open(const Quirks& quirks, const std::string& host_address,
                                              Admits admits);
  ~OfiDomain() override;

  const Traits& traits() const override { return traits_; }
  Bytes address() const override { return station_.name; }
  Result<uint32_t> add_region(MutableBytes memory, Access access) override;
  RemoteRange remote_range(uint32_t region) const override {
    return regions_.at(region).here.range;
  }
  Result<uint32_t> add_door_region(uint32_t door, MutableBytes memory) override {
    return add_for_door(door, memory, std::nullopt);
  }
  Result<uint32_t> add_twin_region(std::optional<uint32_t> door, MutableBytes memory,
                                   const RemoteRange& twin) override {
    if (!provider_.chooses_keys()) return Domain::add_twin_region(door, memory, twin);
    return door ? add_for_door(*door, memory, twin.key) : add_for_all(memory, twin.key);
  }
  void remove_region(uint32_t region) override;
  Result<uint32_t> connect(Bytes address) override;
  void disconnect(uint32_t peer) override;
  void abandon(uint32_t peer, Absence absence) override;
  Result<uint32_t> open_door() override;
  Bytes door_address(uint32_t door) const override { return doors_.address(door); }
  void close_door(uint32_t door) override { doors_.close(door, postings_.waiting()); }
  Drain drain_door(uint32_t door) const override { return doors_.drain(door); }
  bool post_write(const Write& write) override { return post_writes({&write, 1}) > 0; }
  size_t post_writes(std::span<const Write> writes) override;
  bool post_send(uint32_t peer, uint32_t region, Bytes message, uint64_t context) override;
  bool post_receive(uint32_t region, MutableBytes buffer, uint64_t context) override;
  size_t poll(std::span<Completion> completions) override;
  Rejections rejections() const override { return {.refused = provider_.guard->refused()}; }
  int wait_descriptor() const override { return sleepers_.descriptor(); }
  bool arm() override {
    return !postings_.has_waiting() && held_.empty() &&
           sleepers_.arm(provider_, peers_.is_answer_awaited());
  }
  /// No descriptor tells of an answer to a knock, nor of a lock that is free again.
  uint64_t look_within_ns() const override {
    const bool is_held_up = calls_ && calls_->is_held_up();
    return is_held_up || !knocks_.is_empty() ? kNowAndThenNs : kNever;
  }

 private:
  struct Region {
    Registration here;
    std::optional<uint32_t> door;  // through which alone it is reached
  };
  /// A write that libfabric had no room for, although it has taken those before it of its batch.
  struct Held {
    Write write;
    std::vector<Segment> further;
    Posting* posting;
  };

  OfiDomain(Provider provider, Station station);

  using Key = std::optional<uint64_t>;  // none: a new one

  Status look_at_region();
  Status check_that_closing_ends_access();
  Result<uint32_t> add_local(MutableBytes memory);
  Result<uint32_t> add_for_all(MutableBytes memory, Key key);
  Result<uint32_t> add_for_door(uint32_t door, MutableBytes memory, Key key);
  void* descriptor_of(uint32_t region) const;
  bool is_gone(uint32_t peer, uint64_t context);
  bool is_ready(Peer& peer);
  template <typename Call>
  bool post(Event event, uint64_t context, uint32_t peer, const Call& function);
  int64_t write(const Write& write, Posting& posting);
  void post_held();
  void drop_held(uint32_t peer);
  size_t read_queue(std::span<Completion> completions);
  template <typename Call>
  int64_t call(RobustCalls::Purpose purpose, const Call& function);
  void close(Owned<fid_ep>& endpoint);
  std::optional<Completion> completed(const fi_cq_data_entry& entry);
  std::optional<Completion> take_error();
  void drain();

  const Provider provider_;
  const Quirks& quirks_;
  Traits traits_;
  std::unique_ptr<RobustCalls> calls_;  // null: none is needed
  RegionHead* region_ = nullptr;        // of the station's endpoint; not null if there are calls_
  bool tells_landings_ = false;         // writes without an immediate come with kNoImmediate
  Station station_;
  std::unordered_map<uint32_t, Region> regions_;
  Peers peers_;
  PeerAddresses addresses_;
  Knocks knocks_;
  size_t connects_ = 0;  // ever
  Sleepers sleepers_;
  /// Of this moment: forgotten whenever libfabric may open or take one, in a poll or a posting.
  Connections connections_;
  uint64_t polled_ns_ = 0;  // if there are doorbells
  Doors doors_;
  bool doors_first_ = false;  // in turns
  size_t from_doors_ = 0;     // from the last poll
  size_t from_queue_ = 0;
  Pace queue_pace_;
  uint32_t next_region_ = 0;
  Postings postings_{peers_, quirks_.keeps_broken_connections};
  std::vector<Held> held_;
};

}  // namespace braid::fabric::ofi
