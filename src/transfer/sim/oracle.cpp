#include "transfer/sim/oracle.h"

namespace braid::transfer::sim {

std::vector<double> optimum_gbps(const Network& network, const std::vector<Demand>& demands) {
  const int nics = network.cluster().nic_count();
  std::vector<SteadyFlow> flows;
  for (const Demand& demand : demands)
    for (int nic = 0; nic < nics; ++nic)
      flows.push_back({{demand.ours.host, nic},
                       {demand.theirs.host, nic},
                       demand.ours,
                       demand.theirs,
                       demand.direction});
  const std::vector<double> rates = network.steady_gbps(flows);
  std::vector<double> sums(demands.size(), 0);
  for (size_t i = 0; i < rates.size(); ++i) sums[i / static_cast<size_t>(nics)] += rates[i];
  return sums;
}

double optimum_us(const Cluster& cluster, double size_bytes, double gbps) {
  return cluster.submit_us.value + cluster.post_us.value + cluster.latency_us.value +
         size_bytes / (gbps * 1e3);
}

}  // namespace braid::transfer::sim
