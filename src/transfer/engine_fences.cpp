// Engine: fences late or broken ways, until nothing that was posted there can land any more.
#include <algorithm>
#include <utility>

#include "transfer/engine.h"

namespace braid::transfer {

/// Fences a path with patience: if its late postings end soon by themselves, no link need be
/// closed. A peer's only working link gets more time, since nothing moves until it is up again.
void Engine::want_fence(uint32_t id) {
  constexpr uint64_t kPatienceNs = 10'000'000;
  constexpr uint64_t kPatienceOfLastNs = 1'000'000'000;
  Path& path = paths_.at(id);
  const std::vector<uint32_t>& all = peers_.find(path.peer)->paths;
  const bool has_others = std::any_of(all.begin(), all.end(), [&](uint32_t other) {
    return other != id && paths_.at(other).backend != &mapped_ && is_up(paths_.at(other)) &&
           scheduler_.view(other, now_ns_).state == PathState::kUp;
  });
  path.fence_ns = now_ns_ + (!is_up(path) ? 0 : has_others ? kPatienceNs : kPatienceOfLastNs);
  fences_wanted_.push_back(id);
  look_after_fences();
}

void Engine::way_failed(uint32_t way) {
  scheduler_.path_failed(way, now_ns_);
  const Peer& peer = *peers_.find(paths_.at(way).peer);
  const auto through = peer.through_host.find(way);
  if (through != peer.through_host.end()) scheduler_.path_failed(through->second, now_ns_);
}

void Engine::way_up(uint32_t way) {
  scheduler_.path_may_work(way, now_ns_);
  const Peer& peer = *peers_.find(paths_.at(way).peer);
  const auto through = peer.through_host.find(way);
  if (through != peer.through_host.end()) scheduler_.path_may_work(through->second, now_ns_);
}

/// The pair of rails has no path any more, and requests that have no other one end.
void Engine::way_of_other_version(uint32_t way) {
  const uint64_t number = paths_.at(way).peer;
  Peer& peer = *peers_.find(number);
  const auto pair = std::find_if(peer.path_of_pair.begin(), peer.path_of_pair.end(),
                                 [&](const auto& each) { return each.second == way; });
  if (pair == peer.path_of_pair.end()) return;
  peer.other_version.insert(pair->first);
  peer.path_of_pair.erase(pair);
  peer.ways.clear();
  peer.last_ways.reset();
  scheduler_.retire_path(way);
  if (const auto through = peer.through_host.find(way); through != peer.through_host.end())
    scheduler_.retire_path(through->second);
  std::vector<uint64_t> stopped;
  running_.for_each([&](uint64_t request, Running& running) {
    if (running.peer != number || scheduler_.has_paths(running.ways)) return;
    if (running.cause == Cause::kNone) running.cause = Cause::kOtherVersion;
    stopped.push_back(request);
  });
  for (const uint64_t request : stopped) scheduler_.cancel(request, now_ns_);
}

/// Leaves a path out where it does not reach the memory, while there is another one.
void Engine::slice_failed(uint32_t id, uint32_t ways) {
  Path& path = paths_.at(id);
  const auto pause_ns = path.reach[ways].failed(fabric_.generation(path.backend_way));
  if (!pause_ns) return;
  scheduler_.set_closed(ways, id, true);
  std::erase_if(closed_, [&](const Closed& closed) { return closed.is(ways, id); });
  closed_.push_back({now_ns_ + *pause_ns, ways, id});
}

void Engine::slice_landed(uint32_t id, uint32_t ways) {
  if (paths_.at(id).reach.erase(ways) == 0) return;
  open_closed([&](const Closed& closed) { return closed.is(ways, id); });
}

void Engine::open_closed_ways() {
  open_closed([this](const Closed& closed) { return now_ns_ >= closed.until_ns; });
}

void Engine::open_closed(const std::function<bool(const Closed&)>& is_meant) {
  std::erase_if(closed_, [&](const Closed& closed) {
    const bool is_known = paths_.contains(closed.path);
    if (is_known && !is_meant(closed)) return false;
    if (is_known) scheduler_.set_closed(closed.ways, closed.path, false);
    return true;
  });
}

/// Both paths that use the link are fenced, whichever of them wanted it, since the link is closed.
void Engine::way_fenced(uint32_t way) {
  const Peer& peer = *peers_.find(paths_.at(way).peer);
  const auto through = peer.through_host.find(way);
  fenced(way);
  if (through == peer.through_host.end()) return;
  through_->stop(through->second);
  fenced(through->second);
}

bool Engine::is_up(const Path& path) const {
  return path.backend != &fabric_ || fabric_.is_up(path.backend_way);
}

/// A path is fenced only once no bytes in the engine's memory are still on their way to a GPU.
void Engine::fenced(uint32_t id) {
  if (through_ && through_->holds(id)) {
    fenced_below_.push_back(id);
    return;
  }
  paths_.at(id).is_fencing = paths_.at(id).may_land = false;
  std::erase(fences_wanted_, id);  // another path of the same link may have been fenced first
  scheduler_.fenced(id, now_ns_);
}

void Engine::look_after_fences() {
  for (const uint32_t id : std::exchange(fenced_below_, {})) fenced(id);
  std::erase_if(fences_wanted_, [&](uint32_t id) {
    Path& path = paths_.at(id);
    if (path.is_fencing) return true;
    if (path.open == 0 && is_up(path) && !path.may_land) {
      scheduler_.fenced(id, now_ns_);
      return true;
    }
    if (path.open > 0 && is_up(path) && now_ns_ < path.fence_ns) return false;
    ++statistics_.fences;
    path.is_fencing = true;
    if (through_) through_->stop(id);
    path.backend->fence(path.backend_way);
    return true;
  });
}

}  // namespace braid::transfer
