// The CPUs that a process may use: those of its mask (sched_setaffinity(2), cpusets), and of their
// time no more than the quotas of its control groups allow (a container with `--cpus`).
#pragma once

#include <sched.h>

#include <filesystem>

namespace braid {

struct UsableCpus {
  cpu_set_t mask{};  ///< of the thread that asked
  int count =
      0;  ///< of the mask, or of the smallest quota, rounded down, if that is less; 0: unknown
};

/// `root` is the folder that has `proc` and `sys`. A file that is missing, or has no number, limits
/// nothing.
UsableCpus usable_cpus(const std::filesystem::path& root = "/");

}  // namespace braid
