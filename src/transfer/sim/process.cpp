#include "transfer/sim/process.h"

#include <algorithm>

#include "transfer/policy/pairing.h"

namespace braid::transfer::sim {
namespace {

uint64_t to_ns(double us) { return static_cast<uint64_t>(us * 1000); }

}  // namespace

struct Process::Pending {
  uint64_t begun_ns = 0;
  size_t left = 0;
  uint32_t failed = 0;
  std::function<void(const BatchEnded&)> ended;
};

struct Process::Request {
  std::shared_ptr<Pending> batch;
  Memory ours, theirs;
  Direction direction;
};

Process::Process(Network& network, int host, Method method, uint64_t seed)
    : network_(network),
      host_(host),
      method_(method),
      scheduler_(options_of(method, seed),
                 policy_of(method, network.cluster().nic_gbps.value, seed)) {
  const Cluster& cluster = network.cluster();
  for (int nic = 0; nic < cluster.nic_count(); ++nic)
    rails_.push_back(scheduler_.add_rail({cluster.nic_gbps.value}));
  nic_bytes_.resize(rails_.size());
  workers_.resize(static_cast<size_t>(cluster.workers.value));
}
Process::~Process() = default;

void Process::set_share(int nic, const RailShare& share) {
  scheduler_.set_share(rail(nic), share);
  pump();
}

RailUse Process::take_use(int nic) { return scheduler_.take_use(rail(nic), network_.now_ns()); }

// ---- Ways ----

uint32_t Process::path_to(int ours, int host, int theirs, uint32_t remote_rail) {
  const auto known = path_by_nics_.find({ours, host, theirs});
  if (known != path_by_nics_.end()) return known->second;
  const Cluster& cluster = network_.cluster();
  PathSpec spec;
  spec.peer = static_cast<uint64_t>(host);
  spec.local_rail = rails_[static_cast<size_t>(ours)];
  spec.remote_rail = remote_rail;
  spec.nominal_gbps = cluster.nic_gbps.value;
  spec.latency_us = cluster.latency_us.value;
  const uint32_t path = scheduler_.add_path(spec);
  wires_.push_back(network_.open_path({host_, ours}, {host, theirs}));
  nic_of_path_.push_back(ours);
  const int node = cluster.nic_place(theirs).numa_node;
  probe_memory_.push_back({host, cluster.host_place(node)});
  return path_by_nics_[{ours, host, theirs}] = path;
}

uint32_t Process::ways_between(const Memory& ours, const Memory& theirs) {
  const WaysKey key{ours, theirs};
  const auto known = ways_.find(key);
  if (known != ways_.end()) return known->second;
  const Cluster& cluster = network_.cluster();
  std::vector<Place> nics;
  std::vector<uint32_t> remote;
  for (int nic = 0; nic < cluster.nic_count(); ++nic) {
    nics.push_back(cluster.nic_place(nic));
    const auto [at, is_new] = remote_rails_.try_emplace({theirs.host, nic}, 0);
    if (is_new) at->second = scheduler_.add_rail({cluster.nic_gbps.value});
    remote.push_back(at->second);
  }
  const std::vector<uint8_t> near = tiers(ours.place, nics), far = tiers(theirs.place, nics);
  std::vector<NicPair> pairs = pairs_between(near, far, pair_by_node(nics, nics));
  if (takes_any_pair(method_)) {
    pairs.clear();
    for (size_t i = 0; i < nics.size(); ++i)
      for (size_t j = 0; j < nics.size(); ++j)
        if (near[i] < kOtherNode && far[j] < kOtherNode) pairs.push_back({i, j, kNearest});
  }
  uint8_t nearest = kOtherNode;
  for (const NicPair& pair : pairs) nearest = std::min(nearest, pair.tier);
  std::vector<Way> ways;
  for (const NicPair& pair : pairs)
    if (pair.tier == nearest || leaves_first_tier(method_))
      ways.push_back({path_to(static_cast<int>(pair.ours), theirs.host,
                              static_cast<int>(pair.theirs), remote[pair.theirs]),
                      pair.tier});
  return ways_[key] = scheduler_.add_ways(std::move(ways));
}

// ---- Requests ----

void Process::submit(const Batch& batch, std::function<void(const BatchEnded&)> ended) {
  auto pending = std::make_shared<Pending>();
  pending->begun_ns = network_.now_ns();
  pending->left = batch.sizes_bytes.size();
  pending->ended = std::move(ended);
  const uint32_t ways = ways_between(batch.ours, batch.theirs);
  // The caller's thread submits one request after the other.
  uint64_t when_ns = network_.now_ns();
  for (const uint64_t size_bytes : batch.sizes_bytes) {
    when_ns += to_ns(network_.cluster().submit_us.value);
    RequestSpec spec;
    spec.id = next_request_++;
    spec.peer = static_cast<uint64_t>(batch.theirs.host);
    spec.size_bytes = size_bytes;
    spec.urgency = batch.urgency;
    spec.ways = ways;
    spec.source = batch.source;
    spec.address = spec.id << 32;
    requests_.emplace(spec.id, Request{pending, batch.ours, batch.theirs, batch.direction});
    network_.at_ns(when_ns, [this, spec] {
      scheduler_.add(spec, network_.now_ns());
      pump();
    });
  }
}

uint64_t Process::worker_is_free(uint64_t wanted_ns) {
  uint64_t& worker = *std::min_element(workers_.begin(), workers_.end());
  worker = std::max(worker, wanted_ns) + to_ns(network_.cluster().post_us.value);
  return worker;
}

void Process::post(const Posting& posting) {
  const Request& request = requests_.at(posting.request);
  const uint64_t epoch = network_.epoch(wires_[posting.path]);
  network_.at_ns(worker_is_free(network_.now_ns()), [this, posting, request, epoch] {
    if (network_.epoch(wires_[posting.path]) != epoch) return;
    network_.post(wires_[posting.path], request.ours, request.theirs, request.direction,
                  posting.size_bytes, [this, posting] {
                    nic_bytes_[static_cast<size_t>(nic_of_path_[posting.path])] +=
                        posting.size_bytes;
                    if (on_delivered) on_delivered(posting.size_bytes, network_.now_ns());
                    scheduler_.ended(posting.id, Ending::kDone, network_.now_ns());
                    pump();
                  });
  });
}

void Process::post(const Probe& probe) {
  const int nic = nic_of_path_[probe.path];
  const Memory ours{host_,
                    network_.cluster().host_place(network_.cluster().nic_place(nic).numa_node)};
  const uint64_t epoch = network_.epoch(wires_[probe.path]);
  network_.at_ns(worker_is_free(network_.now_ns()), [this, probe, ours, epoch] {
    if (network_.epoch(wires_[probe.path]) != epoch) return;
    network_.post(wires_[probe.path], ours, probe_memory_[probe.path], Direction::kWrite,
                  probe.size_bytes, [this, probe] {
                    scheduler_.ended(probe.id, Ending::kDone, network_.now_ns());
                    pump();
                  });
  });
}

void Process::apply(const SchedulerEvent& event) {
  if (const auto* fence = std::get_if<FenceWanted>(&event)) {
    const uint32_t path = fence->path;
    network_.at_ns(network_.now_ns() + to_ns(network_.cluster().fence_us.value), [this, path] {
      network_.fence(wires_[path]);
      scheduler_.fenced(path, network_.now_ns());
      pump();
    });
  }
  const auto* ended = std::get_if<RequestEnded>(&event);
  if (ended == nullptr) return;
  const auto at = requests_.find(ended->request);
  const std::shared_ptr<Pending> batch = at->second.batch;
  requests_.erase(at);
  if (ended->outcome != Outcome::kDone) ++batch->failed;
  if (--batch->left == 0) batch->ended({network_.now_ns() - batch->begun_ns, batch->failed});
}

void Process::pump() {
  const uint64_t now_ns = network_.now_ns();
  while (const auto posting = scheduler_.next(now_ns)) post(*posting);
  while (const auto probe = scheduler_.next_probe(now_ns)) post(*probe);
  while (const auto event = scheduler_.next_event()) apply(*event);
  plan_look();
}

void Process::plan_look() {
  const uint64_t when_ns = scheduler_.next_deadline_ns();
  if (when_ns >= look_ns_) return;
  look_ns_ = when_ns;
  network_.at_ns(when_ns, [this, when_ns] {
    if (look_ns_ != when_ns) return;
    look_ns_ = kNever;
    pump();
  });
}

// ---- Shares ----

ShareTable::ShareTable(Network& network, std::vector<Process*> processes)
    : network_(network), processes_(std::move(processes)) {
  paces_.assign(static_cast<size_t>(network.cluster().nic_count()),
                std::vector<SharePace>(processes_.size()));
}

void ShareTable::run_until(uint64_t end_ns) {
  end_ns_ = end_ns;
  beat();
}

void ShareTable::beat() {
  const uint64_t now_ns = network_.now_ns();
  for (size_t nic = 0; nic < paces_.size(); ++nic) share(nic, now_ns);
  if (now_ns + kShareBeatNs <= end_ns_) network_.at_ns(now_ns + kShareBeatNs, [this] { beat(); });
}

void ShareTable::share(size_t nic, uint64_t now_ns) {
  ShareHeard heard;
  heard.members = processes_.size();
  std::vector<ShareRow> rows;
  std::vector<size_t> active;  // processes, by row
  for (size_t i = 0; i < processes_.size(); ++i) {
    const RailUse use = processes_[i]->take_use(static_cast<int>(nic));
    const ShareTold told = paces_[nic][i].tell(use, now_ns);
    heard.delivered_bytes += use.delivered_bytes;
    heard.is_full = heard.is_full || told.is_full;
    if (!told.is_active) continue;
    rows.push_back({i + 1, now_ns, told.rate_gbps, told.is_full});
    active.push_back(i);
  }
  heard.rows = rows;
  for (heard.mine = 0; heard.mine < rows.size(); ++heard.mine) {
    const size_t process = active[heard.mine];
    processes_[process]->set_share(static_cast<int>(nic),
                                   paces_[nic][process].decide(heard, now_ns));
  }
}

}  // namespace braid::transfer::sim
