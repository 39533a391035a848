// What must not take long, on a machine that may hold any thread up for a while.
#pragma once

#include <chrono>

namespace braid::test {

/// Whether `task`, which says how long it took, takes less than `limit` once in three times.
template <typename Task>
bool is_once_within(std::chrono::steady_clock::duration limit, const Task& task) {
  for (int turn = 0; turn < 3; ++turn)
    if (task() < limit) return true;
  return false;
}

}  // namespace braid::test
