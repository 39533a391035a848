// One process of the simulated cluster: a scheduler, the workers that post for it, and its paths.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <unordered_map>
#include <vector>

#include "transfer/policy/share_pace.h"
#include "transfer/sim/baselines.h"
#include "transfer/sim/network.h"

namespace braid::transfer::sim {

/// Requests that are submitted together.
struct Batch {
  std::vector<uint64_t> sizes_bytes;
  Memory ours, theirs;
  Direction direction = Direction::kWrite;
  Urgency urgency = Urgency::kBulk;
  uint32_t source = 0;  ///< the thread that submits it
};

struct BatchEnded {
  uint64_t took_ns = 0;
  uint32_t failed = 0;  ///< requests
};

class Process {
 public:
  Process(Network& network, int host, Method method, uint64_t seed);
  ~Process();

  void submit(const Batch& batch, std::function<void(const BatchEnded&)> ended);
  /// Called each time bytes are delivered.
  std::function<void(uint64_t bytes, uint64_t now_ns)> on_delivered;

  Scheduler& scheduler() { return scheduler_; }
  const Scheduler& scheduler() const { return scheduler_; }
  Network& network() { return network_; }
  int host() const { return host_; }
  uint32_t rail(int nic) const { return rails_[static_cast<size_t>(nic)]; }
  /// The bytes delivered over this NIC of ours.
  uint64_t delivered_bytes(int nic) const { return nic_bytes_[static_cast<size_t>(nic)]; }
  /// The share and the use of a NIC of ours.
  void set_share(int nic, const RailShare& share);
  RailUse take_use(int nic);

 private:
  struct Pending;
  struct Request;
  using WaysKey = std::pair<Memory, Memory>;

  uint32_t ways_between(const Memory& ours, const Memory& theirs);
  uint32_t path_to(int ours, int host, int theirs, uint32_t remote_rail);
  uint64_t worker_is_free(uint64_t wanted_ns);
  void pump();
  void post(const Posting& posting);
  void post(const Probe& probe);
  void apply(const SchedulerEvent& event);
  void plan_look();

  Network& network_;
  int host_;
  Method method_;
  Scheduler scheduler_;
  std::vector<uint32_t> rails_;  // by NIC
  std::vector<uint64_t> nic_bytes_;
  std::map<std::pair<int, int>, uint32_t> remote_rails_;        // by host and NIC
  std::map<std::tuple<int, int, int>, uint32_t> path_by_nics_;  // ours, their host, theirs
  std::vector<int> wires_;                                      // the network's, by path
  std::vector<int> nic_of_path_;                                // ours
  std::vector<Memory> probe_memory_;                            // theirs, by path
  std::map<WaysKey, uint32_t> ways_;
  std::unordered_map<uint64_t, Request> requests_;
  std::vector<uint64_t> workers_;  // when each becomes free
  uint64_t next_request_ = 1;
  uint64_t look_ns_ = kNever;
};

/// At each beat the processes of one host tell each other how much they use of each NIC, and keep
/// to their shares, as engines do (transfer/shares.h). The table must not outlive any of them.
class ShareTable {
 public:
  ShareTable(Network& network, std::vector<Process*> processes);
  void run_until(uint64_t end_ns);

 private:
  void beat();
  void share(size_t nic, uint64_t now_ns);

  Network& network_;
  std::vector<Process*> processes_;
  std::vector<std::vector<SharePace>> paces_;  // by NIC and process
  uint64_t end_ns_ = 0;
};

}  // namespace braid::transfer::sim
