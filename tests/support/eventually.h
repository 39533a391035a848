// Waiting for what must come about. The limit is one that a busy machine does not reach.
#pragma once

#include <chrono>
#include <functional>
#include <thread>

namespace braid::test {

inline bool eventually(const std::function<bool()>& is_so,
                       std::chrono::seconds limit = std::chrono::seconds(60)) {
  const auto end = std::chrono::steady_clock::now() + limit;
  while (!is_so()) {
    if (std::chrono::steady_clock::now() > end) return false;
    std::this_thread::sleep_for(std::chrono::microseconds(200));
  }
  return true;
}

}  // namespace braid::test
