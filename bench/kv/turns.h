// Contenders that take turns, and what their turns took.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "bench/kv/contenders.h"

namespace braid::bench {

struct Side {
  std::string name;
  std::unique_ptr<Contender> contender;
  std::vector<double> gbps = {};
  std::vector<double> seconds = {};
  std::vector<double> submit_us = {};
};

/// Turns of all sides, the first ones for warming up; who begins changes.
void take_turns(std::vector<Side>& sides, Moves moves, int turns);

/// True if every byte of every side is where it belongs.
bool verify(std::vector<Side>& sides);

}  // namespace braid::bench
