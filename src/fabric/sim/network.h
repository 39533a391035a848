// A simulated network in virtual time. It keeps the contract of domain.h and nothing more: writes
// land in 64-byte pieces in any order, across and within rails; immediates and completions come
// late; queues are full. Hosts pause, resume and crash, and rails break, all from one seed: equal
// seeds and calls give equal runs. Bytes really move, so bytes that land where they should not are
// noticed.
//
// Used by one thread. The network outlives its domains, and the memory of regions outlives the
// network, as a machine outlives its processes.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "fabric/domain.h"
#include "fabric/sim/random.h"
#include "simulation/simulation.h"

namespace braid::fabric::sim {

struct NetworkOptions {
  double link_gbps = 1;  ///< of one rail, each way, unless it has a speed of its own
  double latency_us_min = 1;
  double latency_us_max = 10;
  double landing_us_max = 10;   ///< from the first piece of a write to the last
  int queue_depth = 16;         ///< postings to one peer of one domain that have not completed
  uint64_t postings_max = 256;  ///< Traits::postings_max
  size_t segments_max = 4;      ///< of one write
  size_t batched_writes_max = 8;
  size_t region_bytes_max = ~size_t{0};  ///< larger memory is refused
  bool answers_writes = false;           ///< Traits::answers_writes
  double full_chance = 0;                ///< the chance that a queue with room claims to be full
  /// The differences between the domains of providers:
  bool removal_fences = true;
  bool closing_fences = true;
  bool lands_when_polled = false;   ///< the target's process must poll for bytes to land
  bool breaks_connections = true;   ///< Domain::abandon ends postings to silent peers too
  bool stops_with_process = false;  ///< a paused process's writes pause with it
};

enum class Break {
  kFails,   ///< postings under way fail; some bytes land nevertheless, up to landing_us_max later
  kStalls,  ///< postings under way wait, and go on once the rail is mended
  kSilent,  ///< postings under way never land or complete
  /// Messages under way complete and never land, as those that a connection takes with it; writes
  /// never land or complete.
  kSwallows,
};

/// Some bytes of a write reach memory.
struct Landing {
  const std::byte* target;
  size_t size_bytes;
};

class Network {
 public:
  /// `simulation` has no other resources than the network's.
  Network(simulation::Simulation& simulation, uint64_t seed, NetworkOptions options);
  ~Network();

  /// Adds a process. `wake` is called when the process should poll: something has come, or a queue
  /// has room again.
  int add_host(std::function<void()> wake);
  /// Peers find a domain by its `place`. A later process may open the same place, as with a port
  /// that is used again. `link_gbps`: another speed than that of the options.
  std::unique_ptr<Domain> open_domain(int host, uint64_t place,
                                      std::optional<double> link_gbps = std::nullopt);

  void pause(int host);
  void resume(int host);
  /// The process is gone. Its bytes that are in the network already still land, for up to
  /// landing_us_max; otherwise it reads and writes no memory. Destroy its domains afterwards.
  void crash(int host, Break others_see);
  /// Breaks everything to and from this domain, until `mend`.
  void cut(const Domain& domain, Break how);
  void mend(const Domain& domain);
  /// The domain registers this memory, and writes into it fail all the same: as where an IOMMU or a
  /// switch stands between NIC and memory.
  void deny_access(const Domain& domain, Bytes memory);
  void allow_access(const Domain& domain);  // to all memory
  /// From now on the domain registers no larger memory.
  void limit_regions(const Domain& domain, size_t size_bytes_max);
  /// The run is over: nothing lands any more, and memory may be freed before the domains.
  void end() { has_ended_ = true; }

  /// Called just before bytes land, with the run's clock at that time.
  std::function<void(const Landing&)> on_landing;

 private:
  friend class SimulatedDomain;
  struct Nic;
  struct Host;
  struct Flight;

  void depart(const std::shared_ptr<Flight>& flight);
  void arrive(const std::shared_ptr<Flight>& flight);
  void begin_landing(const std::shared_ptr<Flight>& flight);
  void land(const std::shared_ptr<Flight>& flight, uint64_t pieces);
  bool find_target(Flight& flight);
  void copy(const Flight& flight, uint64_t pieces);
  void copy(const Flight& flight, uint64_t first, uint64_t last);
  void land_message(const std::shared_ptr<Flight>& flight);
  void match_messages(Nic& nic);
  void announce(const std::shared_ptr<Flight>& flight);
  void finish(const std::shared_ptr<Flight>& flight, bool ok);
  void fail(const std::shared_ptr<Flight>& flight);
  void complete(const std::shared_ptr<Flight>& flight, bool ok);
  void leave_ghost(Flight& flight);
  template <typename GoOn>
  bool is_held_up(const std::shared_ptr<Flight>& flight, const GoOn& go_on);
  template <typename GoOn>
  bool is_cut(const std::shared_ptr<Flight>& flight, Nic& nic, const GoOn& go_on);
  void run_later(std::vector<std::function<void()>>& held);
  void deliver(Nic& nic, const Completion& completion);
  void wake(const Nic& nic);
  void close(Nic& nic);
  double some_latency_us();
  int class_between(const Nic& from, const Nic& to);
  Nic* find(uint64_t id) { return nics_[id].get(); }
  Nic& nic_of(const Domain& domain);
  Nic* find_place(uint64_t place);
  bool has_ended_silently(uint64_t place) const;

  simulation::Simulation& simulation_;
  Random random_;
  NetworkOptions options_;
  std::vector<std::unique_ptr<Host>> hosts_;
  std::vector<std::unique_ptr<Nic>> nics_;               // by id; null once its domain is gone
  std::map<uint64_t, std::pair<uint64_t, int>> places_;  // the latest domain there, and its host
  std::map<std::pair<uint64_t, uint64_t>, int> classes_;
  uint32_t next_door_ = 1;
  bool has_ended_ = false;
  const Nic* polled_ = nullptr;  // whose poll is running
};

}  // namespace braid::fabric::sim
