// The formulas of `braid tune`: from times that a known model predicts, the model comes back.
#include "tools/fit.h"

#include <gtest/gtest.h>

#include <cmath>

#include "multipath/cost_file.h"

namespace braid::tools {
namespace {

using multipath::CostModel;
using multipath::Direction;
using multipath::DirectionCosts;
using multipath::Mover;

CostModel other_server() {
  CostModel model = multipath::default_costs();
  DirectionCosts& costs = model.of(Direction::kHostToDevice);
  costs.native_start_us = 9;
  costs.native_bytes_per_us = 25e3;
  costs.kernel_start_us = 31;
  costs.kernel_launch_us = 6;
  costs.kernel_bytes_per_us = 23e3;
  costs.kernel_ceiling_bytes_per_us = 160e3;
  costs.kernel_cold_us = 40;
  costs.kernel_cold_ceiling_bytes_per_us = 120e3;
  costs.kernel_segment_us = 0.3;
  costs.native_entry_us = 0.5;
  costs.native_small_entry_us = 2.1;
  costs.engine_staged_start_us = 44;
  costs.engine_bytes_per_us = 25e3;  // what native copies reach
  costs.engine_ceiling_bytes_per_us = 110e3;
  return model;
}

// A server that behaves as `model` says.
Sampler server_of(const CostModel& model) {
  return [&model](const Sample& sample) {
    int paths = 0;
    return expected_us(
        model, sample.mover,
        {.direction = Direction::kHostToDevice,
         .size_bytes = sample.size_bytes,
         .segments = sample.segment_bytes == 0 ? 1 : sample.size_bytes / sample.segment_bytes,
         .paths = sample.paths,
         .is_cold = sample.is_cold},
        paths);
  };
}

DirectionCosts fitted(const Sampler& server, int gpus) {
  DirectionCosts costs = multipath::default_costs().of(Direction::kHostToDevice);
  for (const Fit& fit : fits()) fit.run(server, gpus, costs);
  return costs;
}

DirectionCosts fitted(const CostModel& model, int gpus) { return fitted(server_of(model), gpus); }

TEST(Fit, FindsTheParametersOfAServer) {
  const CostModel model = other_server();
  for (const int gpus : {2, 4, 8}) {
    const DirectionCosts found = fitted(model, gpus);
    for (const multipath::CostRow& row : multipath::cost_rows()) {
      // Few paths never come near the ceiling.
      if (gpus < 8 && (row.value == &DirectionCosts::kernel_ceiling_bytes_per_us ||
                       row.value == &DirectionCosts::kernel_cold_ceiling_bytes_per_us ||
                       row.value == &DirectionCosts::engine_ceiling_bytes_per_us))
        continue;
      const double truth = model.of(Direction::kHostToDevice).*row.value;
      EXPECT_NEAR(found.*row.value, truth, 0.05 * truth + 0.3) << row.name << ", " << gpus;
    }
  }
}

// What a parameter that does not show is taken for predicts no less than what was measured.
TEST(Fit, PredictsWhatItHasMeasured) {
  const CostModel model = other_server();
  for (const int gpus : {2, 4, 8}) {
    CostModel found;
    found.of(Direction::kHostToDevice) = fitted(model, gpus);
    for (const Mover mover : {Mover::kNative, Mover::kKernel, Mover::kCopyEngine})
      for (const uint64_t mib : {4, 16, 64, 256})
        for (const uint64_t segment_bytes : {0, 8 << 10, 64 << 10}) {
          const Sample sample{mover, mib << 20, gpus, false, segment_bytes};
          const double truth = server_of(model)(sample);
          EXPECT_NEAR(server_of(found)(sample) / truth, 1, 0.15)
              << mover_name(mover) << " " << mib << " " << segment_bytes << ", " << gpus;
        }
  }
}

TEST(Fit, NoiseNeverMakesAParameterThatTheFileRefuses) {
  for (const double time_us : {0.001, 1.0, 1e9}) {
    const Sampler server = [&](const Sample&) { return time_us; };
    const DirectionCosts costs = fitted(server, 4);
    for (const multipath::CostRow& row : multipath::cost_rows()) {
      EXPECT_TRUE(std::isfinite(costs.*row.value)) << row.name;
      EXPECT_GE(costs.*row.value, row.is_rate ? multipath::kLeastRate : 0) << row.name;
      EXPECT_LE(costs.*row.value, multipath::kMostCost) << row.name;
    }
  }
}

}  // namespace
}  // namespace braid::tools
