#include "transfer/sim/network.h"

#include <algorithm>

namespace braid::transfer::sim {
namespace {

enum Kind { kSend, kReceive, kNicUp, kNicDown, kGpuUp, kGpuDown, kMemory, kSocketUp, kSocketDown };

// The rate of a NIC that stands still: so low that nothing moves in any run.
constexpr double kStandsStill = 1e-9;

std::vector<double> capacities(const Cluster& cluster) {
  std::vector<double> host;
  const auto add = [&](double gbps, int count) {
    host.insert(host.end(), static_cast<size_t>(count), gbps);
  };
  for (int kind = kSend; kind <= kReceive; ++kind) add(cluster.nic_gbps.value, cluster.nic_count());
  for (int kind = kNicUp; kind <= kNicDown; ++kind)
    add(cluster.nic_pcie_gbps.value, cluster.nic_count());
  for (int kind = kGpuUp; kind <= kGpuDown; ++kind)
    add(cluster.gpu_pcie_gbps.value, cluster.gpu_count());
  add(cluster.memory_gbps.value, cluster.numa_nodes);
  for (int kind = kSocketUp; kind <= kSocketDown; ++kind)
    add(cluster.socket_gbps.value, cluster.numa_nodes);
  std::vector<double> all;
  for (int i = 0; i < cluster.hosts; ++i) all.insert(all.end(), host.begin(), host.end());
  return all;
}

}  // namespace

struct Network::Write {
  int share_class;
  double latency_us;
  uint64_t size_bytes;
  std::function<void()> done;
};

struct Network::Path {
  Nic ours, theirs;
  std::deque<Write> queue;
  bool is_busy = false;
  uint64_t epoch = 0;  // counts fences
};

Network::Network(const Cluster& cluster, uint64_t seed)
    : cluster_(cluster), random_(seed), simulation_(capacities(cluster)) {
  resources_of_host_ = static_cast<int>(capacities(cluster).size()) / std::max(1, cluster.hosts);
}
Network::~Network() = default;

int Network::resource(int host, int kind, int index) const {
  const int nics = cluster_.nic_count(), gpus = cluster_.gpu_count(), nodes = cluster_.numa_nodes;
  const int sizes[] = {nics, nics, nics, nics, gpus, gpus, nodes, nodes, nodes};
  int first = host * resources_of_host_;
  for (int i = 0; i < kind; ++i) first += sizes[i];
  return first + index;
}

// Between memory and a NIC of the same host. `is_read`: from memory to the NIC.
void Network::add_way(std::vector<int>& resources, const Memory& memory, const Nic& nic,
                      bool is_read, int& crossings) const {
  const Place& place = memory.place;
  const Place at = cluster_.nic_place(nic.index);
  resources.push_back(resource(nic.host, is_read ? kNicDown : kNicUp, nic.index));
  if (place.is_gpu)
    resources.push_back(resource(memory.host, is_read ? kGpuUp : kGpuDown, place.pcie_switch));
  else
    resources.push_back(resource(memory.host, kMemory, place.numa_node));
  if (place.numa_node == at.numa_node) return;
  ++crossings;
  const int node = std::min(place.numa_node, at.numa_node);
  const bool is_up = (place.numa_node < at.numa_node) == is_read;
  resources.push_back(resource(memory.host, is_up ? kSocketUp : kSocketDown, node));
}

std::vector<int> Network::resources_of(const SteadyFlow& flow, int& crossings) const {
  const bool is_write = flow.direction == Direction::kWrite;
  const Nic& from = is_write ? flow.our_nic : flow.their_nic;
  const Nic& to = is_write ? flow.their_nic : flow.our_nic;
  std::vector<int> resources = {resource(from.host, kSend, from.index),
                                resource(to.host, kReceive, to.index)};
  add_way(resources, is_write ? flow.ours : flow.theirs, from, true, crossings);
  add_way(resources, is_write ? flow.theirs : flow.ours, to, false, crossings);
  return resources;
}

std::vector<double> Network::steady_gbps(const std::vector<SteadyFlow>& flows) const {
  std::vector<double> capacities;
  for (int i = 0; i < cluster_.hosts * resources_of_host_; ++i)
    capacities.push_back(simulation_.flows().capacity(i));
  std::vector<simulation::ShareClass> classes;
  int crossings = 0;
  for (const SteadyFlow& flow : flows) classes.push_back({resources_of(flow, crossings), 0, 1, 1});
  std::vector<double> rates(flows.size());
  simulation::FairShareRoom room;
  simulation::fair_share(capacities, classes, rates, room);
  return rates;
}

const std::pair<int, double>& Network::class_of(int index, const Memory& ours, const Memory& theirs,
                                                Direction direction) {
  const ClassKey key{index, ours, theirs, direction};
  const auto known = classes_.find(key);
  if (known != classes_.end()) return known->second;
  const Path& path = *paths_[static_cast<size_t>(index)];
  int crossings = 0;
  const std::vector<int> resources =
      resources_of({path.ours, path.theirs, ours, theirs, direction}, crossings);
  const int share_class = simulation_.flows().add_class(resources, 0);
  const double latency_us =
      cluster_.latency_us.value + crossings * cluster_.socket_latency_us.value;
  return classes_.emplace(key, std::pair{share_class, latency_us}).first->second;
}

int Network::open_path(Nic ours, Nic theirs) {
  paths_.push_back(std::make_unique<Path>());
  paths_.back()->ours = ours;
  paths_.back()->theirs = theirs;
  return static_cast<int>(paths_.size()) - 1;
}

void Network::post(int index, const Memory& ours, const Memory& theirs, Direction direction,
                   uint64_t size_bytes, std::function<void()> done) {
  const auto& [share_class, latency_us] = class_of(index, ours, theirs, direction);
  const double jitter = 1 + cluster_.latency_jitter.value * random_.unit();
  Path& path = *paths_[static_cast<size_t>(index)];
  path.queue.push_back({share_class, latency_us * jitter, size_bytes, std::move(done)});
  if (!path.is_busy) begin(index);
}

// The next write begins when the last byte of this one has left; the completion of this one comes
// later.
void Network::begin(int index) {
  Path& path = *paths_[static_cast<size_t>(index)];
  path.is_busy = !path.queue.empty();
  if (!path.is_busy) return;
  auto write = std::make_shared<Write>(std::move(path.queue.front()));
  path.queue.pop_front();
  const uint64_t epoch = path.epoch;
  simulation_.flow(write->share_class, write->size_bytes, [this, index, write, epoch] {
    Path& at = *paths_[static_cast<size_t>(index)];
    if (at.epoch != epoch) return;
    simulation_.after_us(write->latency_us, [this, index, write, epoch] {
      if (paths_[static_cast<size_t>(index)]->epoch == epoch) write->done();
    });
    begin(index);
  });
}

uint64_t Network::epoch(int index) const { return paths_[static_cast<size_t>(index)]->epoch; }

void Network::fence(int index) {
  Path& path = *paths_[static_cast<size_t>(index)];
  ++path.epoch;
  path.queue.clear();
  path.is_busy = false;
}

void Network::set_speed(Nic nic, double part) {
  const double gbps = cluster_.nic_gbps.value * std::max(part, kStandsStill);
  for (const Kind kind : {kSend, kReceive})
    simulation_.flows().set_capacity(simulation_.now(), resource(nic.host, kind, nic.index), gbps);
}

void Network::run_until_ns(uint64_t end_ns) {
  const simulation::Time end = simulation::from_ns(end_ns);
  while (simulation_.step(end)) {
  }
  simulation_.advance_clock(end);
}

}  // namespace braid::transfer::sim
