#include "simulation/flows.h"

#include <algorithm>
#include <utility>

namespace braid::simulation {
namespace {

// A flow has arrived when less than this is missing: what rounding leaves over.
constexpr double kArrivedBytes = 1e-3;

}  // namespace

Flows::Flows(std::vector<double> capacities_gbps) : capacities_(std::move(capacities_gbps)) {}

int Flows::add_class(std::vector<int> resources, double cap_gbps, int group) {
  classes_.push_back({std::move(resources), cap_gbps, 0});
  groups_.push_back(group);
  if (group >= static_cast<int>(in_group_.size())) in_group_.resize(group + 1);
  lanes_.emplace_back();
  rates_.push_back(0);
  return static_cast<int>(classes_.size()) - 1;
}

void Flows::set_cap(Time now, int share_class, double gbps) {
  settle(now);
  classes_[share_class].cap = gbps;
  stale_ = true;
}

int Flows::add_resource(double capacity_gbps) {
  capacities_.push_back(capacity_gbps);
  stale_ = true;
  return static_cast<int>(capacities_.size()) - 1;
}

void Flows::set_capacity(Time now, int resource, double gbps) {
  settle(now);
  capacities_[resource] = gbps;
  stale_ = true;
}

void Flows::limit_both_ways(int one_way, int other_way, int both) {
  both_ways_.push_back({one_way, other_way, both});
  stale_ = true;
}

void Flows::start(Time now, int share_class, uint64_t size_bytes, Done done) {
  settle(now);
  Lane& lane = lanes_[share_class];
  if (lane.flows.empty()) lane.served = 0;  // keeps the number small, and so exact
  lane.flows.emplace(std::pair{lane.served + static_cast<double>(size_bytes), started_++},
                     std::move(done));
  ++classes_[share_class].flows;
  stale_ = true;
}

void Flows::settle(Time now) {
  if (now <= settled_) return;
  if (stale_) refresh_rates();
  const double elapsed = static_cast<double>(now - settled_) * kBytesPerPicosecond;
  for (size_t c = 0; c < lanes_.size(); ++c)
    if (!lanes_[c].flows.empty()) lanes_[c].served += rates_[c] * elapsed;
  settled_ = now;
}

void Flows::find_capacities_in_force() {
  in_force_ = capacities_;
  crossing_.assign(capacities_.size(), 0);
  for (const ShareClass& share_class : classes_)
    for (int r : share_class.resources) crossing_[r] += share_class.flows;
  for (const BothWays& limit : both_ways_)
    if (crossing_[limit.one_way] == 0 || crossing_[limit.other_way] == 0) in_force_[limit.both] = 0;
}

void Flows::find_weights() {
  in_group_.assign(in_group_.size(), 0);
  for (size_t c = 0; c < classes_.size(); ++c)
    if (groups_[c] != kNoGroup) in_group_[groups_[c]] += classes_[c].flows;
  for (size_t c = 0; c < classes_.size(); ++c)
    if (groups_[c] != kNoGroup && classes_[c].flows > 0)
      classes_[c].weight = 1.0 / in_group_[groups_[c]];
}

void Flows::refresh_rates() {
  stale_ = false;
  find_weights();
  find_capacities_in_force();
  fair_share(in_force_, classes_, rates_, room_);
  next_ = kForever;
  for (size_t c = 0; c < lanes_.size(); ++c) {
    if (lanes_[c].flows.empty() || !(rates_[c] > 0)) continue;
    const double finish = lanes_[c].flows.begin()->first.first;
    const double missing = std::max(0.0, finish - lanes_[c].served);
    const double wait = std::ceil(missing / (rates_[c] * kBytesPerPicosecond));
    next_ = std::min(next_, settled_ + static_cast<Time>(wait));
  }
}

Time Flows::next_completion() {
  if (stale_) refresh_rates();
  return next_;
}

std::vector<Flows::Done> Flows::advance(Time now) {
  settle(now);
  std::map<uint64_t, Done> arrived;  // by the order of starting
  for (size_t c = 0; c < lanes_.size(); ++c) {
    Lane& lane = lanes_[c];
    while (!lane.flows.empty() && lane.flows.begin()->first.first <= lane.served + kArrivedBytes) {
      auto flow = lane.flows.extract(lane.flows.begin());
      arrived.emplace(flow.key().second, std::move(flow.mapped()));
      --classes_[c].flows;
    }
  }
  stale_ = true;
  std::vector<Done> done;
  done.reserve(arrived.size());
  for (auto& [order, each] : arrived) done.push_back(std::move(each));
  return done;
}

}  // namespace braid::simulation
