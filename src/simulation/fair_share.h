// Max-min fair shares by progressive filling: a pure function. All flows speed up together, each in
// proportion to its weight; a flow stops when a resource it crosses is full or its own cap is
// reached; the others go on. The result is the one allocation in which no flow can gain without
// one losing that has no more for its weight.
// Source: Bertsekas and Gallager, Data Networks, section 6.5.2.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

namespace braid::simulation {

/// Flows that cross the same resources with the same cap, and so get the same rate.
struct ShareClass {
  std::vector<int> resources;  ///< indices into the capacities, each at most once
  double cap = 0;              ///< limit of each single flow; 0: none
  int flows = 0;               ///< how many there are now
  double weight = 1;           ///< a flow's share beside one of weight 1 on a full resource
};

/// Room that a caller keeps between calls, so that they do not allocate.
struct FairShareRoom {
  std::vector<double> left;            ///< by resource: capacity not yet given to frozen flows
  std::vector<double> growing_weight;  ///< by resource
  std::vector<size_t> growing;         ///< classes whose rate still rises
  std::vector<double> limits;          ///< of those
};

/// Writes the rate of one flow of each class, in the unit of the capacities; classes without flows
/// get 0. A capacity that is 0 or less means no limit. A class with neither a limited resource nor
/// a cap gets infinity. `rates` is as long as `classes`.
void fair_share(std::span<const double> capacities, std::span<const ShareClass> classes,
                std::span<double> rates, FairShareRoom& room);

}  // namespace braid::simulation
