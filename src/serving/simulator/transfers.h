// Copies between the host and GPUs in virtual time. Copies of one GPU and direction run one after
// the other. All that run at once share links and host memory max-min fairly.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <functional>
#include <vector>

#include "serving/hardware.h"
#include "simulation/simulation.h"

namespace braid::serving {

enum class Direction : uint8_t { kLoad, kSave };

class Transfers {
 public:
  using Done = std::function<void()>;

  /// The capacities for the simulation's flows.
  static std::vector<double> capacities(const Link& link, const HostMemory& host, int gpus);

  Transfers(simulation::Simulation& simulation, const Link& link, int gpus);

  /// `done` runs when the last byte has arrived. Copies of one GPU and direction end in the order
  /// in which they were submitted.
  void submit(int gpu, Direction direction, uint64_t size_bytes, Done done);
  /// Bytes that were submitted and have not ended.
  uint64_t under_way_bytes(int gpu, Direction direction) const {
    return lane(gpu, direction).under_way_bytes;
  }

 private:
  struct Copy {
    uint64_t size_bytes;
    Done done;
  };
  struct Lane {
    std::deque<Copy> queue;
    bool running = false;
    int share_class = 0;
    uint64_t under_way_bytes = 0;
  };

  const Lane& lane(int gpu, Direction direction) const {
    return lanes_[static_cast<size_t>(gpu)][static_cast<size_t>(direction)];
  }
  void start_next(int gpu, Direction direction);
  void end(int gpu, Direction direction);

  simulation::Simulation& simulation_;
  bool one_way_at_a_time_;
  double start_us_;
  std::vector<std::array<Lane, 2>> lanes_;  // by GPU and direction
};

}  // namespace braid::serving
