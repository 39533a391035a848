// The parts of the simulated network: hosts, network interfaces, and postings on their way.
#pragma once

#include <algorithm>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <vector>

#include "fabric/sim/network.h"

namespace braid::fabric::sim {

inline constexpr uint64_t kNobody = ~uint64_t{0};
inline constexpr uint32_t kNoDoor = 0;

struct Network::Host {
  std::function<void()> wake;
  bool paused = false;
  Break end = Break::kFails;                ///< how it looks to others once its domains are gone
  std::vector<std::function<void()>> held;  ///< run when it resumes
};

struct Network::Nic {
  struct Region {
    MutableBytes memory;
    Access access;
    RemoteRange range;
    uint32_t door = kNoDoor;  // through which alone it is reached
  };
  struct Buffer {
    MutableBytes memory;
    uint64_t context;
  };

  bool denies(Bytes memory) const {
    return std::any_of(denied.begin(), denied.end(), [&](Bytes each) {
      return memory.data() < each.data() + each.size() &&
             each.data() < memory.data() + memory.size();
    });
  }

  /// The other end: a place, and a door there, or kNoDoor.
  struct Peer {
    uint64_t place;
    uint32_t door;
  };

  uint64_t id = 0;
  uint64_t place = 0;
  int host = 0;
  int out = 0;  // the resources of simulation::Flows
  int in = 0;
  Traits traits;
  std::map<uint32_t, Region> regions;
  uint32_t next_region = 0;
  std::vector<Peer> peers;                           // by index; disconnected ones stay, as kNobody
  std::map<uint32_t, std::vector<std::byte>> doors;  // their addresses
  std::set<uint32_t> closing_doors;                  // writes that have begun still land there
  std::deque<Completion> completions;
  std::deque<Buffer> buffers;
  std::vector<std::shared_ptr<Flight>> flights;   // of its own postings that have not ended
  std::vector<std::shared_ptr<Flight>> messages;  // have come, and found no buffer
  std::vector<std::function<void()>> held_until_polled;
  std::vector<std::function<void()>> held_until_mended;
  std::optional<Break> cut;
  std::vector<Bytes> denied;  // memory that it registers and cannot access
  size_t region_bytes_max = ~size_t{0};
};

/// A posting on its way.
struct Network::Flight {
  uint64_t from = 0;      // the id of a domain
  uint32_t peer = 0;      // its index there
  uint64_t to = kNobody;  // a place
  uint32_t door = kNoDoor;
  bool is_message = false;
  std::vector<Segment> segments;    // of a message: one, without a target
  uint64_t size_bytes = 0;          // of all of them
  std::vector<std::byte> snapshot;  // the bytes in the network once the source is not read
  uint64_t context = 0;
  // Only for writes:
  uint64_t target_key = 0;
  std::optional<uint32_t> immediate;
  uint32_t slices = 1;
  std::vector<std::byte*> targets;  // of the segments, found when the first piece lands
  uint64_t landed_at = 0;           // the domain where
  uint64_t piece_bytes = 64;
  uint64_t missing = 0;    // a bit for each piece that has not landed
  bool has_ended = false;  // completed, failed or silent: it reads no source any more
  bool is_ghost = false;   // bytes that have left the source land nevertheless
};

class SimulatedDomain final : public Domain {
 public:
  SimulatedDomain(Network& network, Network::Nic& nic);
  ~SimulatedDomain() override;

  const Traits& traits() const override { return nic_.traits; }
  Bytes address() const override { return address_; }
  Result<uint32_t> add_region(MutableBytes memory, Access access) override;
  RemoteRange remote_range(uint32_t region) const override;
  void remove_region(uint32_t region) override;
  Result<uint32_t> connect(Bytes address) override;
  void disconnect(uint32_t peer) override;
  void abandon(uint32_t peer, Absence absence) override;
  Result<uint32_t> open_door() override;
  Bytes door_address(uint32_t door) const override { return nic_.doors.at(door); }
  Result<uint32_t> add_door_region(uint32_t door, MutableBytes memory) override;
  Result<uint32_t> add_twin_region(std::optional<uint32_t> door, MutableBytes memory,
                                   const RemoteRange& twin) override;
  void close_door(uint32_t door) override;
  Drain drain_door(uint32_t door) const override {
    return nic_.closing_doors.contains(door) ? Drain::kEnding : Drain::kOver;
  }
  bool post_write(const Write& write) override;
  bool post_send(uint32_t peer, uint32_t region, Bytes message, uint64_t context) override;
  bool post_receive(uint32_t region, MutableBytes buffer, uint64_t context) override;
  size_t poll(std::span<Completion> completions) override;

  uint64_t id() const { return nic_.id; }

 private:
  bool is_full(uint32_t peer);
  void check_source(uint32_t region, Bytes source) const;

  Network& network_;
  Network::Nic& nic_;
  std::vector<std::byte> address_;
};

}  // namespace braid::fabric::sim
