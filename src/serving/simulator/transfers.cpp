#include "serving/simulator/transfers.h"

#include <algorithm>
#include <utility>

namespace braid::serving {
namespace {

// Resources: load, save and combined rates of the host's memory, and the same of each GPU's link.
constexpr int kPerPlace = 3;
int load_of(int gpu) { return kPerPlace * (gpu + 1); }

constexpr Direction kDirections[] = {Direction::kLoad, Direction::kSave};

}  // namespace

std::vector<double> Transfers::capacities(const Link& link, const HostMemory& host, int gpus) {
  std::vector<double> all = {host.load_gbps, host.save_gbps, host.both_gbps};
  for (int gpu = 0; gpu < gpus; ++gpu)
    all.insert(all.end(), {link.load_gbps, link.save_gbps, link.both_gbps});
  return all;
}

Transfers::Transfers(simulation::Simulation& simulation, const Link& link, int gpus)
    : simulation_(simulation),
      one_way_at_a_time_(link.one_way_at_a_time),
      start_us_(link.start_us),
      lanes_(static_cast<size_t>(gpus)) {
  simulation::Flows& flows = simulation.flows();
  flows.limit_both_ways(0, 1, 2);
  for (int gpu = 0; gpu < gpus; ++gpu) {
    const int load = load_of(gpu);
    flows.limit_both_ways(load, load + 1, load + 2);
    for (const Direction direction : kDirections) {
      const int way = static_cast<int>(direction);
      lanes_[static_cast<size_t>(gpu)][static_cast<size_t>(way)].share_class =
          flows.add_class({way, 2, load + way, load + 2}, 0);
    }
  }
}

void Transfers::submit(int gpu, Direction direction, uint64_t size_bytes, Done done) {
  Lane& lane = lanes_[static_cast<size_t>(gpu)][static_cast<size_t>(direction)];
  lane.queue.push_back({size_bytes, std::move(done)});
  lane.under_way_bytes += size_bytes;
  start_next(gpu, direction);
}

void Transfers::start_next(int gpu, Direction direction) {
  auto& both = lanes_[static_cast<size_t>(gpu)];
  Lane& lane = both[static_cast<size_t>(direction)];
  if (lane.running || lane.queue.empty()) return;
  if (one_way_at_a_time_) {
    const Lane& other = both[1 - static_cast<size_t>(direction)];
    if (other.running || (direction == Direction::kLoad && !other.queue.empty())) return;
  }
  lane.running = true;
  simulation_.after_us(start_us_, [this, gpu, direction] {
    const Lane& started = this->lane(gpu, direction);
    simulation_.flow(started.share_class, std::max<uint64_t>(started.queue.front().size_bytes, 1),
                     [this, gpu, direction] { end(gpu, direction); });
  });
}

void Transfers::end(int gpu, Direction direction) {
  Lane& lane = lanes_[static_cast<size_t>(gpu)][static_cast<size_t>(direction)];
  const Copy copy = std::move(lane.queue.front());
  lane.queue.pop_front();
  lane.running = false;
  lane.under_way_bytes -= copy.size_bytes;
  copy.done();
  start_next(gpu, Direction::kSave);
  start_next(gpu, Direction::kLoad);
}

}  // namespace braid::serving
