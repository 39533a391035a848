// The wire of a World, and how it breaks.
#include <algorithm>

#include "transfer/world_parts.h"

namespace braid::transfer::test {

void World::depart(const FlightPointer& flight) {
  Path& path = paths_[flight->path];
  if (path.fault == kFull) {
    at(now_ns_, [this, flight] { end(flight, Ending::kRefused); });
    return;
  }
  if (path.fault == kFails) return fail(flight);
  if (flight->request != 0 && random_.chance(failing_chance_)) {
    note_fault(path, now_ns_);
    return fail(flight);
  }
  const double gbps = path.fault == kSlow ? path.gbps / 50 : path.gbps;
  const uint64_t begun_ns = std::max(now_ns_, path.busy_until_ns);
  path.busy_until_ns =
      begun_ns + static_cast<uint64_t>(static_cast<double>(flight->size_bytes) / gbps);
  at(path.busy_until_ns + path.latency_ns + random_.below(2 * kUs),
     [this, flight] { arrive(flight); });
}

void World::arrive(const FlightPointer& flight) {
  Path& path = paths_[flight->path];
  if (flight->epoch != path.epoch) return;
  switch (path.fault) {
    case kFreezes: path.held.push_back(flight); return;
    case kLoses: return;
    case kFails: return fail(flight);
    default: break;
  }
  land(*flight, flight->size_bytes);
  at(now_ns_ + random_.below(10 * kUs), [this, flight] { end(flight, Ending::kDone); });
}

void World::land(const Flight& flight, uint64_t bytes) {
  if (flight.request == 0) return;
  Region& region = regions_[flight.region];
  if (region.request != flight.request)
    bug("bytes of request " + std::to_string(flight.request) + " landed by path " +
        std::to_string(flight.path) + " after it had ended");
  std::copy_n(region.source.begin() + static_cast<std::ptrdiff_t>(flight.offset), bytes,
              region.target.begin() + static_cast<std::ptrdiff_t>(flight.offset));
}

// Some of it lands before the failure is told; or later, if it is said to be lost.
void World::fail(const FlightPointer& flight) {
  const uint64_t told_ns = now_ns_ + random_.below(50 * kUs);
  const bool is_lost = random_.chance(0.5);
  if (is_lost) {
    at(told_ns + random_.below(3 * kMs), [this, flight] {
      if (flight->epoch == paths_[flight->path].epoch)
        land(*flight, random_.between(0, flight->size_bytes));
    });
  }
  at(told_ns, [this, flight, is_lost] { end(flight, is_lost ? Ending::kLost : Ending::kFailed); });
}

// Behind its fence it says nothing any more.
void World::end(const FlightPointer& flight, Ending how) {
  const bool is_fenced = flight->epoch != paths_[flight->path].epoch;
  if (is_fenced && random_.chance(0.5)) return;
  Region& region = regions_[flight->region];
  const bool is_slice = flight->request != 0 && flight->request == region.request;
  if (is_slice && !is_fenced && how == Ending::kDone) {
    const auto first = region.told.begin() + static_cast<std::ptrdiff_t>(flight->offset);
    std::fill_n(first, flight->size_bytes, true);
  }
  scheduler_->ended(flight->posting, how, now_ns_);
}

void World::fence(uint32_t path) {
  ++counts_.fences;
  trace("path " + std::to_string(path) + " is fenced");
  ++paths_[path].epoch;
  paths_[path].held.clear();
  paths_[path].is_fencing = false;
  // The end of what a fault has begun: its path is probed as after one. A path that is fenced again
  // without another fault has no such excuse.
  const bool is_broken = paths_[path].fault != kFaults;
  if (is_broken || paths_[path].is_excused_to_fence)
    paths_[path].faulty_ns = std::max(paths_[path].faulty_ns, now_ns_);
  paths_[path].is_excused_to_fence = is_broken;
  if (!paths_[path].is_forgotten) scheduler_->fenced(path, now_ns_);
}

// ---- Faults ----

void World::break_something() {
  ++counts_.faults;
  const int how = static_cast<int>(random_.below(kFaults));
  const uint64_t until_ns = now_ns_ + random_.between(100 * kUs, 40 * kMs);
  if (random_.chance(0.3)) {  // a NIC, with all its pairs
    const size_t rail = random_.below(rails_);
    for (uint32_t i = 0; i < paths_.size(); ++i)
      if (paths_[i].local == rail || paths_[i].remote == rail) break_path(i, how, until_ns);
    return;
  }
  const uint32_t path = static_cast<uint32_t>(random_.below(paths_.size()));
  break_path(path, how, until_ns);
  if (how != kFails || !random_.chance(0.3)) return;
  trace("path " + std::to_string(path) + " is known to have failed");
  if (!paths_[path].is_forgotten) scheduler_->path_failed(path, now_ns_);
}

// Somebody knows that it has ended; another process may be there at once.
void World::lose_peer() {
  const uint64_t lost = paths_[random_.below(paths_.size())].peer;
  trace("peer " + std::to_string(lost) + " is lost");
  for (Region& region : regions_)
    if (region.request != 0 && peer_of_way_[region.way] == lost) region.has_lost_peer = true;
  scheduler_->peer_lost(lost, now_ns_);
}

void World::retire_some_path() {
  const uint32_t path = static_cast<uint32_t>(random_.below(paths_.size()));
  if (paths_[path].is_forgotten) return;
  paths_[path].is_retired = true;
  trace("path " + std::to_string(path) + " is retired");
  scheduler_->retire_path(path);
}

// Its caller has closed all that it has opened there.
void World::leave_peer() {
  leaving_peer_ = paths_[random_.below(paths_.size())].peer;
  trace("peer " + std::to_string(leaving_peer_) + " is left");
  forget_peer();
}

// Once nothing is asked of it any more.
void World::forget_peer() {
  if (leaving_peer_ == 0 || has_left_) return;
  for (const Region& region : regions_)
    if (region.request != 0 && peer_of_way_[region.way] == leaving_peer_) return;
  has_left_ = true;
  trace("peer " + std::to_string(leaving_peer_) + " is forgotten");
  scheduler_->remove_peer(leaving_peer_);
  for (Path& path : paths_) path.is_forgotten = path.peer == leaving_peer_;
}

void World::break_path(uint32_t index, int how, uint64_t until_ns) {
  Path& path = paths_[index];
  if (path.fault != kFaults) return;
  path.fault = how;
  note_fault(path, until_ns);
  trace("path " + std::to_string(index) + " breaks: " + std::to_string(how));
  at(until_ns, [this, index] { mend(index); });
}

void World::note_fault(Path& path, uint64_t until_ns) {
  path.was_ever_faulty = path.is_excused_to_fence = true;
  path.faulty_ns = std::max(path.faulty_ns, until_ns);
}

void World::mend(uint32_t index) {
  Path& path = paths_[index];
  trace("path " + std::to_string(index) + " is mended");
  path.fault = kFaults;
  path.busy_until_ns = std::min(path.busy_until_ns, now_ns_ + kMs);
  std::vector<FlightPointer> held;
  held.swap(path.held);
  for (const FlightPointer& flight : held)
    at(now_ns_ + random_.below(3 * kMs), [this, flight] { arrive(flight); });
}

}  // namespace braid::transfer::test
