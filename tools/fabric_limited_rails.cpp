#include <fmt/core.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "bench/fabric/limited_rails.h"
#include "tools/commands.h"
#include "tools/fabric_bench.h"
#include "tools/write_file.h"

namespace braid::tools {

int bench_limited_rails(int turns, const std::string& json_file) {
  bench::LimitedRailsOptions race;
  race.turns = std::min(turns, 64);
  const bench::LimitedRailsResult result = bench::race_limited_rails(race);
  nlohmann::json record = {{"provider", "tcp;ofi_rxm"},
                           {"pattern", "single"},
                           {"rails", race.rails},
                           {"megabit", race.megabit},
                           {"size_bytes", race.size_bytes},
                           {"against", "sum of rails"},
                           {"against_gbps", result.sum_gbps},
                           {"waived", result.waived}};
  if (!result.waived.empty()) {
    fmt::print("waived: {}\n", result.waived);
  } else if (!result.failed.empty()) {
    record["failed"] = result.failed;
    fmt::print(stderr, "limited rails: {}\n", result.failed);
  } else {
    fmt::print("{} rails of {} Mbit/s: {:.4f} GB/s of {:.4f}, ratio {:.3f}{}\n", race.rails,
               race.megabit, result.braid_gbps, result.sum_gbps, result.ratio,
               result.is_verified ? "" : "  WRONG BYTES");
    record.update({{"braid_gbps", result.braid_gbps},
                   {"ratio", result.ratio},
                   {"verified", result.is_verified}});
  }
  if (!json_file.empty()) {
    const Status written = write_file(json_file, nlohmann::json::array({record}).dump(2) + "\n");
    if (!written.ok()) return fail(written);
  }
  return result.waived.empty() && !result.is_verified ? 1 : 0;
}

}  // namespace braid::tools
