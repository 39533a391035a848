#include "stress/both_movers.h"

#include <cstdlib>
#include <stdexcept>

#include "cuda/driver.h"
#include "multipath/cost_file.h"

namespace braid::stress {
namespace {

multipath::CostModel costs_of_both_movers() {
  multipath::CostModel model = multipath::default_costs();
  for (multipath::DirectionCosts& costs : model.by_direction) {
    costs.kernel_start_us = 10;
    costs.kernel_cold_us = costs.kernel_launch_us = costs.kernel_segment_us = 0;
    costs.engine_start_us = costs.engine_staged_start_us = costs.engine_issue_us = 0;
    costs.native_entry_us = 0;
  }
  return model;
}

template <typename Value>
Value value_of(const Result<Value>& result) {
  if (!result.ok()) throw std::runtime_error(result.status().message());
  return result.value();
}

}  // namespace

std::string write_costs_of_both_movers(const std::map<std::string, std::string>& environment,
                                       const std::string& path) {
  for (const auto& [name, value] : environment) setenv(name.c_str(), value.c_str(), 1);
  const std::string library = environment.at("LD_LIBRARY_PATH") + "/libcuda.so.1";
  const auto driver = value_of(cuda::open_driver(library.c_str()));
  if (const CUresult result = driver.cuInit(0); result != CUDA_SUCCESS)
    throw std::runtime_error("cuInit: " + driver.describe(result));
  const multipath::CostFile file{value_of(multipath::server_key(driver)), 1,
                                 costs_of_both_movers()};
  if (const Status status = multipath::write_cost_file(path, file); !status.ok())
    throw std::runtime_error(status.message());
  return path;
}

}  // namespace braid::stress
