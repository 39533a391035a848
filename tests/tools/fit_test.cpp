// The formulas of `braid tune`: from times that a known model predicts, the model comes back.
#include "tools/fit.h"

#include <gtest/gtest.h>

#include <cmath>

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
  return model;
}

// A server that behaves as `model` says.
Sampler server_of(const CostModel& model) {
  return [&model](const Sample& sample) {
    int paths = 0;
    return expected_us(model, sample.mover,
                       {.direction = Direction::kHostToDevice,
                        .size_bytes = sample.size_bytes,
                        .paths = sample.paths,
                        .is_cold = sample.is_cold},
                       paths);
  };
}

DirectionCosts fitted(const Sampler& time_us, int gpus) {
  DirectionCosts costs = multipath::default_costs().of(Direction::kHostToDevice);
  for (const Fit& fit : fits()) fit.run(time_us, gpus, costs);
  return costs;
}

TEST(Fit, FindsTheParametersOfAServer) {
  const CostModel model = other_server();
  for (const int gpus : {2, 4, 8}) {
    const DirectionCosts found = fitted(server_of(model), gpus);
    for (const multipath::CostRow& row : multipath::cost_rows()) {
      // Two or four paths never come near the ceiling; then it is their sum.
      if (row.value == &DirectionCosts::kernel_ceiling_bytes_per_us && gpus < 8) continue;
      const double truth = model.of(Direction::kHostToDevice).*row.value;
      EXPECT_NEAR(found.*row.value, truth, 0.05 * truth + 0.3) << row.name << ", " << gpus;
    }
  }
}

TEST(Fit, NoiseNeverMakesAParameterThatTheFileRefuses) {
  for (const double time_us : {0.001, 1.0, 1e9}) {
    const DirectionCosts costs = fitted([&](const Sample&) { return time_us; }, 4);
    for (const multipath::CostRow& row : multipath::cost_rows()) {
      EXPECT_TRUE(std::isfinite(costs.*row.value)) << row.name;
      EXPECT_GE(costs.*row.value, row.is_rate ? 0.1 : 0) << row.name;
    }
  }
}

}  // namespace
}  // namespace braid::tools
