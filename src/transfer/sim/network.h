// The hosts of a cluster and the network between them, in virtual time: bytes are flows that share
// NICs, PCIe, sockets and memories max-min fairly. A path carries one write after another, as a
// queue pair does; paths share a NIC evenly, as its arbiter does. The switch between the hosts is
// never full.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <tuple>
#include <vector>

#include "fabric/sim/random.h"
#include "simulation/simulation.h"
#include "transfer/sim/cluster.h"

namespace braid::transfer::sim {

/// Where the bytes of one end lie.
struct Memory {
  int host = 0;
  Place place;
  bool operator<(const Memory& other) const {
    return std::tie(host, place.is_gpu, place.numa_node, place.pcie_switch) <
           std::tie(other.host, other.place.is_gpu, other.place.numa_node, other.place.pcie_switch);
  }
};

struct Nic {
  int host = 0;
  int index = 0;
};

enum class Direction : uint8_t { kRead, kWrite };

/// An endless flow of bytes, from memory to memory over two NICs.
struct SteadyFlow {
  Nic our_nic, their_nic;
  Memory ours, theirs;
  Direction direction = Direction::kWrite;
};

class Network {
 public:
  Network(const Cluster& cluster, uint64_t seed);
  ~Network();

  const Cluster& cluster() const { return cluster_; }
  simulation::Simulation& simulation() { return simulation_; }
  uint64_t now_ns() const { return simulation::to_ns(simulation_.now()); }
  void at_ns(uint64_t when_ns, std::function<void()> action) {
    simulation_.at(simulation::from_ns(when_ns), std::move(action));
  }
  void run_until_ns(uint64_t end_ns);

  int open_path(Nic ours, Nic theirs);
  /// `done` runs when the completion is seen, and never if the path is fenced first.
  void post(int path, const Memory& ours, const Memory& theirs, Direction direction,
            uint64_t size_bytes, std::function<void()> done);
  /// Nothing that was posted there lands or completes any more.
  void fence(int path);
  /// How often the path was fenced.
  uint64_t epoch(int path) const;

  /// From now on the NIC carries this part of its capacity. 0: it stands still, without any report.
  void set_speed(Nic nic, double part);
  /// The rate of each flow if all of them ran, and nothing else.
  std::vector<double> steady_gbps(const std::vector<SteadyFlow>& flows) const;

 private:
  struct Path;
  struct Write;
  using ClassKey = std::tuple<int, Memory, Memory, Direction>;

  int resource(int host, int kind, int index) const;
  void add_way(std::vector<int>& resources, const Memory& memory, const Nic& nic, bool is_read,
               int& crossings) const;
  std::vector<int> resources_of(const SteadyFlow& flow, int& crossings) const;
  const std::pair<int, double>& class_of(int path, const Memory& ours, const Memory& theirs,
                                         Direction direction);
  void begin(int path);

  Cluster cluster_;
  fabric::sim::Random random_;
  simulation::Simulation simulation_;
  int resources_of_host_ = 0;
  std::vector<std::unique_ptr<Path>> paths_;
  std::map<ClassKey, std::pair<int, double>> classes_;  // and the latency there, in us
};

}  // namespace braid::transfer::sim
