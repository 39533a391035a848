#include "host/usable_cpus.h"

#include <algorithm>
#include <cstdint>
#include <fstream>
#include <limits>

#include "host/control_groups.h"

namespace braid {
namespace {

constexpr int64_t kNoQuota = std::numeric_limits<int>::max();

// Microseconds of CPU time in each period. "max", or -1, is no quota.
int64_t whole_cpus(std::istream& quota, std::istream& period) {
  int64_t quota_us = 0;
  int64_t period_us = 0;
  if (!(quota >> quota_us) || !(period >> period_us) || quota_us <= 0 || period_us <= 0)
    return kNoQuota;
  return std::clamp<int64_t>(quota_us / period_us, 1, kNoQuota);
}

int64_t quota_of(const ControlGroup& group) {
  if (group.version == 2) {  // "QUOTA PERIOD"
    std::ifstream both(group.folder / "cpu.max");
    return whole_cpus(both, both);
  }
  std::ifstream quota(group.folder / "cpu.cfs_quota_us");
  std::ifstream period(group.folder / "cpu.cfs_period_us");
  return whole_cpus(quota, period);
}

}  // namespace

UsableCpus usable_cpus(const std::filesystem::path& root) {
  UsableCpus cpus;
  if (sched_getaffinity(0, sizeof cpus.mask, &cpus.mask) != 0) return cpus;
  int64_t count = CPU_COUNT(&cpus.mask);
  for (const ControlGroup& group : control_groups("cpu", root))
    count = std::min(count, quota_of(group));
  cpus.count = static_cast<int>(count);
  return cpus;
}

}  // namespace braid
