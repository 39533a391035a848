// The figures of `braid simulate transfer`. Each runs simulations and answers some requirements.
#pragma once

#include <vector>

#include "transfer/sim/figure.h"
#include "transfer/sim/trial.h"

namespace braid::transfer::sim {

struct FigureRow {
  const char* name;
  const char* what;
  Figure (*run)(const Clusters& clusters, int seeds);
  int gpus = 0;  ///< a host of the testbed needs so many
};
const std::vector<FigureRow>& figure_rows();

Figure tebench(const Clusters& clusters, int seeds);
Figure kv(const Clusters& clusters, int seeds);
Figure weights(const Clusters& clusters, int seeds);
Figure slow_rail(const Clusters& clusters, int seeds);
Figure heal(const Clusters& clusters, int seeds);
Figure flap(const Clusters& clusters, int seeds);
Figure tiers_figure(const Clusters& clusters, int seeds);
Figure incast(const Clusters& clusters, int seeds);
Figure urgent(const Clusters& clusters, int seeds);
Figure share(const Clusters& clusters, int seeds);
Figure cluster_figure(const Clusters& clusters, int seeds);

}  // namespace braid::transfer::sim
