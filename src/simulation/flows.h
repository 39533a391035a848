// Bytes on their way: each flow belongs to a class (a route and a cap), and all flows share the
// resources (links, buses, memories) max-min fairly. Rates change only when the set of flows or a
// capacity changes. Time is given by the caller and never goes back. Not synchronised.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <utility>
#include <vector>

#include "simulation/fair_share.h"
#include "simulation/time.h"

namespace braid::simulation {

class Flows {
 public:
  using Done = std::function<void()>;

  /// `capacities_gbps` by resource; 0 or less: no limit.
  explicit Flows(std::vector<double> capacities_gbps);

  /// A new class; `cap_gbps` 0: no cap. Returns its number. All flows of the classes of one `group`
  /// together count as one flow where they share a resource with others.
  int add_class(std::vector<int> resources, double cap_gbps, int group = kNoGroup);
  static constexpr int kNoGroup = -1;
  /// Of each flow of the class.
  void set_cap(Time now, int share_class, double gbps);
  /// A new resource. Returns its number.
  int add_resource(double capacity_gbps);
  void set_capacity(Time now, int resource, double gbps);
  double capacity(int resource) const { return capacities_[resource]; }
  /// The capacity of `both` counts only while flows cross both `one_way` and `other_way`.
  void limit_both_ways(int one_way, int other_way, int both);

  /// `done` runs from `advance` once all bytes have arrived. `size_bytes` is at least 1.
  void start(Time now, int share_class, uint64_t size_bytes, Done done);

  /// When the next flow ends if nothing changes; kForever when none runs.
  Time next_completion();

  /// Moves time on and returns what `done` is due, in the order the flows started.
  std::vector<Done> advance(Time now);

 private:
  struct Lane {  // of one class: every flow of it progresses equally
    double served = 0;
    // By the `served` at which the last byte has arrived, and by the order of starting.
    std::map<std::pair<double, uint64_t>, Done> flows;
  };
  struct BothWays {
    int one_way;
    int other_way;
    int both;
  };

  void settle(Time now);  // brings `served` up to `now` at the current rates
  void refresh_rates();
  void find_capacities_in_force();
  void find_weights();

  std::vector<double> capacities_;  // GB/s
  std::vector<double> in_force_;    // the same, without limits that do not count now
  std::vector<int> crossing_;       // flows by resource
  std::vector<BothWays> both_ways_;
  std::vector<ShareClass> classes_;
  std::vector<int> groups_;    // by class
  std::vector<int> in_group_;  // flows by group
  std::vector<Lane> lanes_;
  std::vector<double> rates_;  // GB/s of one flow, by class
  FairShareRoom room_;
  bool stale_ = false;
  Time settled_ = 0;
  Time next_ = kForever;
  uint64_t started_ = 0;
};

}  // namespace braid::simulation
