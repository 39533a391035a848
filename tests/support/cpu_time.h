// CPU time: what a thread or a process has used, whatever the machine does beside it.
#pragma once

#include <time.h>

namespace braid::test {

/// `clock`: CLOCK_THREAD_CPUTIME_ID or CLOCK_PROCESS_CPUTIME_ID.
inline double cpu_seconds(clockid_t clock) {
  timespec used{};
  clock_gettime(clock, &used);
  return static_cast<double>(used.tv_sec) + static_cast<double>(used.tv_nsec) / 1e9;
}

}  // namespace braid::test
