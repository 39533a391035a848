#include "bench/kv/turns.h"

#include <algorithm>

namespace braid::bench {

void take_turns(std::vector<Side>& sides, Moves moves, int turns) {
  for (Side& side : sides) {
    side.gbps.clear();
    side.seconds.clear();
    side.submit_us.clear();
  }
  for (int turn = -1; turn < turns; ++turn) {
    std::rotate(sides.begin(), sides.begin() + 1, sides.end());
    for (Side& side : sides) {
      const Turn taken = side.contender->turn(moves);
      if (turn < 0) continue;
      side.gbps.push_back(taken.gbps());
      side.seconds.push_back(taken.seconds);
      side.submit_us.push_back(taken.submit_us);
    }
  }
}

bool verify(std::vector<Side>& sides) {
  bool is_right = true;
  for (Side& side : sides) is_right = side.contender->verify() && is_right;
  return is_right;
}

}  // namespace braid::bench
