#include "transfer/sim/figures.h"

namespace braid::transfer::sim {

const std::vector<FigureRow>& figure_rows() {
  static const std::vector<FigureRow> rows = {
      {"tebench", "4 KB to 64 MB, reads and writes, 2 threads: figure 3", tebench},
      {"kv", "r1-w8a8 by 1 to 16 threads: figure 4", kv},
      {"weights", "weights of two models to 8 GPUs: table 1", weights, 8},
      {"slow-rail", "one rail at 1, 0.5, 0.1 and 0.01 of its capacity", slow_rail},
      {"heal", "a rail vanishes and comes back", heal},
      {"flap", "a rail that flaps every 300 ms", flap},
      {"tiers", "memory of one GPU, over near and far NICs", tiers_figure, 1},
      {"incast", "16 hosts write to one", incast},
      {"urgent", "4 KB urgent beside 64 MB bulk", urgent},
      {"share", "processes that share the NICs of a host", share},
      {"cluster", "one host of 2 to 1,000: ways, probes, what the store sees", cluster_figure},
  };
  return rows;
}

}  // namespace braid::transfer::sim
