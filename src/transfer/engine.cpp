// Engine: memory, peers and their ways. Requests are in batches.cpp.
#include "transfer/engine.h"

#include <algorithm>
#include <utility>

#include "base/try.h"
#include "fabric/gpu/memory.h"
#include "transfer/failure.h"

namespace braid::transfer {
namespace {

constexpr uint64_t kOwnSliceBytesMax = 1 << 20;  // copied by the engine's thread at a stretch
constexpr double kRailGbpsMax = 1000;            // the limit for what a peer claims
constexpr size_t kPeersMax = 4096;

bool is_of_this_host(const fabric::Origin& here, const fabric::Origin& there) {
  return here.boot == there.boot && here.boot != decltype(here.boot){};
}

}  // namespace

Engine::Engine(std::unique_ptr<Owned> owned, std::vector<std::unique_ptr<Rail>> rails,
               std::vector<RailDescription> descriptions, const EngineOptions& options)
    : options_(options),
      owned_(std::move(owned)),
      rails_(std::move(descriptions)),
      fabric_(std::move(rails), options.incarnation),
      memory_(owned_->buffers),
      file_(owned_->exports, *owned_->jobs),
      scheduler_(options.scheduler) {
  for (const RailDescription& rail : rails_)
    rail_numbers_.push_back(scheduler_.add_rail({std::min(rail.gbps, kRailGbpsMax)}));
  if (owned_->gpu == nullptr) return;
  gpu_.emplace(owned_->buffers, *owned_->gpu);
  through_.emplace(owned_->buffers, *owned_->gpu,
                   [this](MutableBytes memory) { return add_stage(memory); });
}

/// What moves bytes through the engine's own memory ends before the memory is freed.
Engine::~Engine() {
  if (owned_->gpu != nullptr) owned_->gpu->wait_for_all();
  owned_->jobs->wait_for_all();
}

Description Engine::describe() const {
  Description description;
  description.incarnation = options_.incarnation;
  description.name = options_.name;
  description.origin = options_.origin;
  description.rails = rails_;
  std::map<PlaceDescription, uint16_t> places;
  for (const Buffer& buffer : owned_->buffers.all()) {
    const PlaceDescription place{buffer.place, buffer.rails};
    const auto [known, is_new] = places.try_emplace(place, static_cast<uint16_t>(places.size()));
    if (is_new && places.size() <= kPlacesInDescriptionMax) description.places.push_back(place);
    if (description.ranges.size() < kRangesInDescriptionMax)
      description.ranges.push_back(
          {buffer.address(), buffer.memory.size(), buffer.rights, known->second});
    ++description.range_count;
  }
  description.exports = owned_->exports.describe();
  description.distances = options_.places.distances();
  if (description.distances.nodes.size() > kNodesInDescriptionMax) description.distances = {};
  return description;
}

// ---- Memory ----

Result<uint64_t> Engine::add_buffer(MutableBytes memory, Rights rights, File file) {
  Buffer buffer;
  buffer.memory = memory;
  buffer.rights = rights;
  BRAID_LET(lane, fabric::gpu::lane_of_memory(memory));
  if (lane != nullptr && owned_->gpu == nullptr)
    return Status::error("this is memory of a GPU, and the engine was opened without any",
                         "Open it with gpu_memory");
  buffer.lane = lane;
  buffer.place = lane == nullptr ? options_.places.of_host(memory.data())
                                 : options_.places.of_gpu(lane->gpu());
  BRAID_LET(id, add_buffer(std::move(buffer)));
  if (lane != nullptr) owned_->gpu->add(lane);
  if (file.is_open() && owned_->sharing != nullptr)
    owned_->sharing->add(id, memory, rights, std::move(file));
  return id;
}

Result<uint64_t> Engine::add_buffer(Buffer buffer) {
  BRAID_LET(id, owned_->buffers.add(std::move(buffer)));
  Result<Reached> reached = fabric_.add_buffer(*owned_->buffers.find(id));
  if (!reached.ok()) {
    owned_->buffers.remove(id);
    return reached.status();
  }
  owned_->buffers.set_reached(id, std::move(reached).value());
  return id;
}

uint64_t Engine::add_stage(MutableBytes memory) {
  Buffer buffer;
  buffer.memory = memory;
  buffer.is_stage = true;
  const Result<uint64_t> added = add_buffer(std::move(buffer));
  if (!added.ok()) return 0;
  // Slices through host memory take any rail.
  if (owned_->buffers.find(added.value())->refusals.empty()) return added.value();
  (void)remove_buffer(added.value());
  return 0;
}

Status Engine::remove_buffer(uint64_t buffer) {
  const Buffer* const known = owned_->buffers.find(buffer);
  if (known == nullptr) return Status::error("there is no such buffer (any more)");
  if (uses_.contains(buffer))
    return Status::error("a request that has not ended uses the buffer", "Wait, or cancel it");
  if (owned_->sharing != nullptr) owned_->sharing->remove(buffer);
  const std::shared_ptr<fabric::gpu::Lane> lane = known->lane;
  owned_->buffers.remove(buffer);
  fabric_.retire_buffer(buffer);
  if (lane != nullptr && owned_->gpu->remove(lane)) through_->leave(lane);
  return {};
}

// ---- Segments ----

Result<uint64_t> Engine::open_segment(const Description& owner, MappedMemory mapped) {
  const auto known = peer_of_.find(owner.incarnation);
  uint64_t peer = known == peer_of_.end() ? 0 : known->second;
  if (peer == 0 && owner.incarnation == options_.incarnation) peer = add_self();
  if (peer == 0) {
    BRAID_LET(added, add_peer(owner));
    peer = added;
  }
  if (peers_.find(peer)->is_lost)
    return failure(Cause::kPeerLost,
                   "the engine " + to_hex(owner.incarnation) +
                       " was given up: it ended, or could not be reached for long",
                   "Close its segments here, then open it again");
  ++peers_.find(peer)->segments;
  add_mapped(peer, std::move(mapped));
  std::map<uint64_t, uint64_t> ends;
  for (const RangeDescription& range : owner.ranges)
    ends[range.address] = range.address + range.size_bytes;
  return segments_.add({peer, owner.places, owner.ranges, std::move(ends), 0, 0, 0});
}

uint64_t Engine::add_self() {
  Peer self;
  self.who = options_.incarnation;
  self.is_self = true;
  const uint64_t number = peers_.add(std::move(self));
  peer_of_[options_.incarnation] = number;
  auto& own = peers_.find(number)->own;
  own[HopKind::kMemory] = add_own_path(number, HopKind::kMemory, memory_, "memory of this process");
  if (gpu_)
    own[HopKind::kCopy] = add_own_path(number, HopKind::kCopy, *gpu_, "GPU copies of this process");
  return number;
}

uint32_t Engine::add_own_path(uint64_t number, HopKind carrier, Backend& backend,
                              std::string text) {
  const HopCost cost = assumed_cost(carrier);
  const uint32_t rail = scheduler_.add_rail({cost.gbps});
  PathSpec spec{number, rail, kNoRail, cost.gbps, cost.latency_us};
  spec.is_certain = true;  // this process, the kernel or the driver ends it
  if (carrier == HopKind::kMemory || carrier == HopKind::kMapped)
    spec.slice_bytes_max = kOwnSliceBytesMax;
  const uint32_t path = scheduler_.add_path(spec);
  paths_[path] = {&backend, number, std::move(text), carrier};
  paths_[path].backend_way = path;
  Peer& peer = *peers_.find(number);
  peer.own_rails.push_back(rail);
  peer.paths.push_back(path);
  return path;
}

void Engine::add_mapped(uint64_t number, MappedMemory mapped) {
  statistics_.mappings_refused += mapped.refused;
  if (mapped.ranges.empty()) return;
  const auto [known, is_new] = peers_.find(number)->own.try_emplace(HopKind::kMapped);
  if (is_new) known->second = add_own_path(number, HopKind::kMapped, mapped_, "mapped memory");
  mapped_.add(known->second, std::move(mapped));
}

Result<uint64_t> Engine::add_peer(const Description& owner) {
  if (peers_.size() >= kPeersMax)
    return failure(Cause::kTooMuch, "there are " + std::to_string(kPeersMax) + " peers, the limit");
  Peer added;
  added.who = owner.incarnation;
  added.is_here = is_of_this_host(options_.origin, owner.origin);
  added.origin = owner.origin;
  added.rails = owner.rails;
  added.distances = owner.distances;
  for (const RailDescription& rail : owner.rails)
    added.rail_numbers.push_back(scheduler_.add_rail({std::clamp(rail.gbps, 0.001, kRailGbpsMax)}));
  const uint64_t number = peers_.add(std::move(added));
  Peer& peer = *peers_.find(number);
  // Dials at once the ways that most requests will take.
  Ends ends;
  uint32_t ways = 0;
  (void)ways_between(number, ends, ways);
  ends.here.place.is_gpu = ends.there.place.is_gpu = true;
  if (owned_->gpu != nullptr) (void)ways_between(number, ends, ways);
  if (peer.paths.empty()) {
    const bool is_of_other_version = !peer.other_version.empty();
    leave_scheduler(number, peer);
    peers_.erase(number);
    if (is_of_other_version)
      return failure(Cause::kOtherVersion,
                     "no rail there speaks a version that this engine's rails speak",
                     "Upgrade the older side");
    std::string ours, theirs;
    for (const RailDescription& rail : rails_)
      ours += (ours.empty() ? "" : ", ") + rail.provider + " at " + rail.host_address;
    for (const RailDescription& rail : owner.rails)
      theirs += (theirs.empty() ? "" : ", ") + rail.provider + " at " + rail.host_address;
    return failure(Cause::kNoWay,
                   "no rail here (" + ours + ") leads to a rail there (" + theirs + ")",
                   "Open both engines at addresses that reach each other");
  }
  peer_of_[peer.who] = number;
  if (options_.processes != nullptr) options_.processes->watch(number, owner.origin);
  return number;
}

Status Engine::close_segment(uint64_t segment) {
  const Segment* found = segments_.find(segment);
  if (found == nullptr) return no_such_segment();
  const uint64_t peer = found->peer;
  segments_.erase(segment);
  --peers_.find(peer)->segments;
  drop_peer_if_unused(peer);
  return {};
}

/// Drops a peer that has no segment and no request any more. Its postings and fences end first, and
/// its notifications are answered first.
void Engine::drop_peer_if_unused(uint64_t number) {
  const Peer* peer = peers_.find(number);
  if (peer == nullptr || !is_unused(*peer)) return;
  if (can_be_dropped(*peer)) return drop_peer(number);
  if (std::find(unused_.begin(), unused_.end(), number) == unused_.end()) unused_.push_back(number);
}

bool Engine::is_unused(const Peer& peer) const {
  return !peer.is_self && peer.segments == 0 && peer.requests == 0 && peer.notifications == 0;
}

bool Engine::can_be_dropped(const Peer& peer) const {
  const bool is_busy = std::any_of(peer.paths.begin(), peer.paths.end(), [&](uint32_t path) {
    return paths_.at(path).open > 0 || paths_.at(path).is_fencing;
  });
  return !is_busy && (peer.is_lost || fabric_.unanswered(peer.who) == 0);
}

void Engine::drop_peer(uint64_t number) {
  const Peer& peer = *peers_.find(number);
  leave_scheduler(number, peer);
  if (const auto mapped = peer.own.find(HopKind::kMapped); mapped != peer.own.end())
    mapped_.drop(mapped->second);
  for (const uint32_t path : peer.paths) {
    std::erase(fences_wanted_, path);
    std::erase(fenced_below_, path);
    paths_.erase(path);
  }
  fabric_.remove_peer(peer.who);
  if (options_.processes != nullptr) options_.processes->forget(number);
  peer_of_.erase(peer.who);
  peers_.erase(number);
}

void Engine::leave_scheduler(uint64_t number, const Peer& peer) {
  scheduler_.remove_peer(number);
  for (const uint32_t rail : peer.rail_numbers) scheduler_.remove_rail(rail);
  for (const uint32_t rail : peer.own_rails) scheduler_.remove_rail(rail);
}

void Engine::look_after_unused_peers() {
  std::erase_if(unused_, [&](uint64_t number) {
    const Peer* peer = peers_.find(number);
    if (peer == nullptr || !is_unused(*peer)) return true;
    if (!can_be_dropped(*peer)) return false;
    drop_peer(number);
    return true;
  });
}

// ---- Peers that end ----

void Engine::lose_peer(uint64_t number) {
  Peer& peer = *peers_.find(number);
  if (std::exchange(peer.is_lost, true)) return;
  ++statistics_.peers_lost;
  if (const auto mapped = peer.own.find(HopKind::kMapped); mapped != peer.own.end())
    mapped_.drop(mapped->second);
  scheduler_.peer_lost(number, now_ns_);
}

void Engine::look_after_processes() {
  constexpr uint64_t kLookNs = 20'000'000;
  if (options_.processes == nullptr || now_ns_ < look_at_processes_ns_) return;
  look_at_processes_ns_ = now_ns_ + kLookNs;
  while (const std::optional<uint64_t> ended = options_.processes->next_ended())
    if (const Peer* peer = peers_.find(*ended); peer != nullptr) {
      fabric_.owner_ended(peer->who);
      lose_peer(*ended);
    }
}

bool Engine::ends_are_told() const {
  return options_.processes != nullptr && options_.processes->descriptor() >= 0;
}

// ---- The driver ----

std::vector<int> Engine::wait_descriptors() {
  std::vector<int> all = fabric_.wait_descriptors();
  all.push_back(owned_->jobs->descriptor());
  all.push_back(owned_->exports.descriptor());
  if (ends_are_told()) all.push_back(options_.processes->descriptor());
  if (owned_->gpu != nullptr) all.push_back(owned_->gpu->descriptor());
  return all;
}

bool Engine::arm() {
  return fabric_.arm() && memory_.arm() && mapped_.arm() && file_.arm() && owned_->jobs->arm() &&
         owned_->exports.arm() &&
         (!gpu_ || (gpu_->arm() && owned_->gpu->arm() && !through_->has_ends()));
}

std::pair<size_t, size_t> Engine::ways_up(uint64_t segment) const {
  const Segment* found = segments_.find(segment);
  if (found == nullptr) return {0, 0};
  const Peer& peer = *peers_.find(found->peer);
  if (peer.is_self) return {1, 1};
  size_t up = 0;
  for (const auto& [pair, path] : peer.path_of_pair) up += is_up(paths_.at(path)) ? 1 : 0;
  return {up, peer.path_of_pair.size()};
}

void Engine::settle(uint64_t segment) {
  const Segment* found = segments_.find(segment);
  if (found == nullptr) return;
  const Peer& peer = *peers_.find(found->peer);
  for (const uint32_t path : peer.paths)
    if (!peer.is_self && !is_up(paths_.at(path))) scheduler_.path_failed(path, now_ns_);
}

Cause Engine::wrong_with(uint64_t segment) const {
  const Segment* found = segments_.find(segment);
  if (found == nullptr) return Cause::kNoSegment;
  const Peer& peer = *peers_.find(found->peer);
  if (peer.is_lost) return Cause::kPeerLost;
  const bool has_rails = peer.other_version.empty() || !peer.path_of_pair.empty();
  return has_rails ? Cause::kNone : Cause::kOtherVersion;
}

Result<std::vector<RangeDescription>> Engine::ranges(uint64_t segment) const {
  const Segment* found = segments_.find(segment);
  if (found == nullptr) return no_such_segment();
  if (peers_.find(found->peer)->is_self) return describe().ranges;
  return found->ranges;
}

}  // namespace braid::transfer
