#include "tools/in_force.h"

#include <fmt/core.h>

#include <cstdlib>

#include "base/units.h"
#include "multipath/engine.h"
#include "multipath/staging/stager.h"

namespace braid::tools {
namespace {

using multipath::Direction;
using multipath::Mover;
using multipath::staging::Stager;

multipath::PlanRequest request_for(const Options& options, Direction direction, int paths) {
  return {.direction = direction,
          .paths = paths,
          .mover = options.mover == MoverChoice::kKernel ? Mover::kKernel : Mover::kCopyEngine,
          .asked_threshold_bytes = options.threshold_bytes};
}

std::string mover_text(const Options& options, bool is_measured) {
  switch (options.mover) {
    case MoverChoice::kKernel: return "kernels alone: BRAID_MOVER=kernel";
    case MoverChoice::kCopyEngine: return "copy engines alone: BRAID_MOVER=copy-engine";
    case MoverChoice::kAuto: break;
  }
  return fmt::format("auto: copy engines, and kernels for batches; by {} costs",
                     is_measured ? "measured" : "default");
}

std::string sizes_text(const Options& options, const multipath::CostModel& costs, int paths) {
  if (options.threshold_bytes != 0)
    return fmt::format("copies of {} and more are carried: BRAID_THRESHOLD",
                       format_size(options.threshold_bytes));
  std::string text;
  for (const Direction direction : {Direction::kHostToDevice, Direction::kDeviceToHost}) {
    const uint64_t size = threshold_bytes(costs, request_for(options, direction, paths));
    text += fmt::format("{}{} {}", text.empty() ? "" : ", ",
                        direction == Direction::kHostToDevice ? "h2d" : "d2h",
                        size == UINT64_MAX ? "never" : "from " + format_size(size));
  }
  return text + " on, while relays are awake: the cost model";
}

std::string pageable_text(const Options& options) {
  const uint64_t least_bytes = Stager::least_bytes(options);
  if (least_bytes == UINT64_MAX)
    return options.pageable_threads == 0
               ? "memory that is not pinned is copied natively: BRAID_PAGEABLE=0"
               : "memory that is not pinned is copied natively: too few CPUs for a thread";
  const int threads = Stager::threads_for(options);
  return fmt::format("{} thread{} stage{} copies of {} and more", threads, threads == 1 ? "" : "s",
                     threads == 1 ? "s" : "", format_size(least_bytes));
}

std::string options_text() {
  std::string set;
  for (const OptionRow& row : option_table())
    if (const char* value = getenv(row.name); value != nullptr && *value != '\0')
      set += fmt::format("{}{}={}", set.empty() ? "" : " ", row.name, value);
  if (set.empty()) set = "none is set";
  for (const std::string& name : unknown_variables()) set += fmt::format("; unknown: {}", name);
  return set;
}

}  // namespace

InForce in_force(const Options& options, const multipath::CostModel& costs, bool is_measured,
                 int paths) {
  return {mover_text(options, is_measured), sizes_text(options, costs, paths),
          pageable_text(options), options_text()};
}

}  // namespace braid::tools
