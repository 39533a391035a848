// One run: some processes of one method on a fresh network, with threads that loop.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "transfer/sim/oracle.h"
#include "transfer/sim/workload.h"

namespace braid::transfer::sim {

/// The clusters that `braid simulate transfer` is given.
struct Clusters {
  Cluster testbed;  ///< the paper's
  Cluster limited;  ///< four slow rails
};

/// Threads that do the same work, but on memory at different places.
struct Loop {
  int threads = 1;
  std::vector<uint64_t> sizes_bytes;
  Direction direction = Direction::kWrite;
  Urgency urgency = Urgency::kBulk;
  uint64_t pause_ns = 0;
  /// The memory of thread i; by default the host memory of the i-th NUMA node at both ends, in
  /// turn.
  std::function<std::pair<Memory, Memory>(int)> memory;
  uint64_t begin_ns = 0;
  uint64_t end_ns = 0;
  uint32_t first_source = 0;
};

class Trial {
 public:
  /// A trial begins with one process, on host 0.
  Trial(const Cluster& cluster, Method method, uint64_t seed);
  /// Adds another process. Returns its index.
  size_t add_process(int host = 0);

  Network& network() { return network_; }
  Process& process(size_t index = 0) { return *processes_[index]; }
  Threads& threads() { return threads_; }
  Timeline& timeline() { return timeline_; }
  std::vector<Process*> processes();

  std::vector<Demand> add(const Loop& loop, size_t process = 0);
  void at_ns(uint64_t when_ns, std::function<void()> action) {
    network_.at_ns(when_ns, std::move(action));
  }
  void set_speed(int nic, double part) { network_.set_speed({0, nic}, part); }

 private:
  Method method_;
  uint64_t seed_;
  Network network_;
  std::vector<std::unique_ptr<Process>> processes_;
  Threads threads_;
  Timeline timeline_{1'000'000};
};

/// Runs the same over some seeds, averages the rates and pools the times.
Measured over_seeds(int seeds, const std::function<Measured(uint64_t seed)>& run);

std::pair<Memory, Memory> host_memory(const Cluster& cluster, int thread);
std::string size_text(uint64_t size_bytes);

}  // namespace braid::transfer::sim
