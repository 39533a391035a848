// Engine: memory, peers and their ways. batches.cpp has what moves.
#include "transfer/engine.h"

#include <algorithm>
#include <utility>

#include "base/try.h"

namespace braid::transfer {
namespace {

constexpr double kMemoryGbps = 10;  // until measured
constexpr double kMemoryLatencyUs = 1;
constexpr double kStorageGbps = 2;
constexpr double kStorageLatencyUs = 100;
constexpr double kRailGbpsMax = 1000;  // what a peer claims is believed no further
constexpr size_t kPeersMax = 4096;

bool is_of_this_host(const fabric::Origin& here, const fabric::Origin& there) {
  return here.boot == there.boot && here.boot != decltype(here.boot){};
}

/// What moves within a host alone: not to this process itself, whose mappings it would share.
bool may_pair(const RailDescription& here, const RailDescription& there, const fabric::Origin& us,
              const fabric::Origin& them) {
  if (here.provider != there.provider) return false;
  if (here.provider != "shm") return true;
  const bool is_same_process = us.process == them.process && us.started == them.started &&
                               us.pid_namespace == them.pid_namespace;
  return is_of_this_host(us, them) && !is_same_process;
}

/// A loopback address is nobody's on another host.
bool is_loopback(const std::string& address) {
  return address.starts_with("127.") || address == "::1" || address == "localhost";
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
}

Engine::~Engine() = default;

Description Engine::describe() const {
  Description description;
  description.incarnation = options_.incarnation;
  description.name = options_.name;
  description.origin = options_.origin;
  description.rails = rails_;
  for (const Buffer& buffer : owned_->buffers.all()) {
    if (description.ranges.size() < kRangesInDescriptionMax)
      description.ranges.push_back({buffer.address(), buffer.memory.size(), buffer.rights});
    ++description.range_count;
  }
  description.exports = owned_->exports.describe();
  return description;
}

// ---- Memory ----

Result<uint64_t> Engine::add_buffer(MutableBytes memory, Rights rights) {
  BRAID_LET(id, owned_->buffers.add(memory, rights));
  const Status added = fabric_.add_buffer(*owned_->buffers.find(id));
  if (added.ok()) return id;
  owned_->buffers.remove(id);
  return added;
}

Status Engine::remove_buffer(uint64_t buffer) {
  if (owned_->buffers.find(buffer) == nullptr)
    return Status::error("there is no such buffer (any more)");
  if (uses_.contains(buffer))
    return Status::error("a request that has not ended uses the buffer", "Wait, or cancel it");
  owned_->buffers.remove(buffer);
  fabric_.retire_buffer(buffer);
  return {};
}

// ---- Segments ----

Result<uint64_t> Engine::open_segment(const Description& owner) {
  const auto known = peer_of_.find(owner.incarnation);
  uint64_t peer = known == peer_of_.end() ? 0 : known->second;
  if (peer == 0 && owner.incarnation == options_.incarnation) peer = add_self();
  if (peer == 0) {
    BRAID_LET(added, add_peer(owner));
    peer = added;
  }
  if (peers_.find(peer)->is_lost)
    return Status::error("the engine " + to_hex(owner.incarnation) +
                             " was given up: it ended, or could not be reached for long",
                         "Once it runs again it has another incarnation");
  ++peers_.find(peer)->segments;
  std::map<uint64_t, uint64_t> ends;
  for (const RangeDescription& range : owner.ranges)
    ends[range.address] = range.address + range.size_bytes;
  return segments_.add({peer, owner.ranges, std::move(ends), 0, 0});
}

uint64_t Engine::add_self() {
  Peer self;
  self.who = options_.incarnation;
  self.is_self = true;
  const uint64_t number = peers_.add(std::move(self));
  Peer& peer = *peers_.find(number);
  peer_of_[peer.who] = number;
  const uint32_t rail = scheduler_.add_rail({kMemoryGbps});
  const uint32_t path = scheduler_.add_path({number, rail, kNoRail, kMemoryGbps, kMemoryLatencyUs});
  paths_[path] = {&memory_, number, "memory of this process", 0, 0, false};
  peer.paths.push_back(path);
  peer.ways = scheduler_.add_ways({{path, 0}});
  const uint32_t storage = scheduler_.add_rail({kStorageGbps});
  const uint32_t to_files =
      scheduler_.add_path({number, storage, kNoRail, kStorageGbps, kStorageLatencyUs});
  paths_[to_files] = {&file_, number, "files of this host", 0, 0, false};
  peer.paths.push_back(to_files);
  peer.file_ways = scheduler_.add_ways({{to_files, 0}});
  return number;
}

Result<uint64_t> Engine::add_peer(const Description& owner) {
  if (peers_.size() >= kPeersMax)
    return Status::error("there are " + std::to_string(kPeersMax) + " peers, the limit");
  Peer added;
  added.who = owner.incarnation;
  const uint64_t number = peers_.add(std::move(added));
  Peer& peer = *peers_.find(number);
  add_paths(number, peer, owner);
  if (peer.paths.empty()) {
    peers_.erase(number);
    std::string ours, theirs;
    for (const RailDescription& rail : rails_)
      ours += (ours.empty() ? "" : ", ") + rail.provider + " at " + rail.host_address;
    for (const RailDescription& rail : owner.rails)
      theirs += (theirs.empty() ? "" : ", ") + rail.provider + " at " + rail.host_address;
    return Status::error("no rail here (" + ours + ") leads to a rail there (" + theirs + ")",
                         "Open both engines at addresses that reach each other");
  }
  peer_of_[peer.who] = number;
  if (options_.processes != nullptr) options_.processes->watch(number, owner.origin);
  return number;
}

/// Rails of one provider are paired one to one, in order; where one side has more, again from the
/// first. What stays within the host is the nearer tier.
void Engine::add_paths(uint64_t number, Peer& peer, const Description& owner) {
  std::vector<Way> ways;
  std::map<std::string, size_t> taken;  // of their rails, by provider
  const bool is_here = is_of_this_host(options_.origin, owner.origin);
  std::vector<uint32_t> remote(owner.rails.size());
  for (size_t j = 0; j < owner.rails.size(); ++j)
    remote[j] = scheduler_.add_rail({std::clamp(owner.rails[j].gbps, 0.001, kRailGbpsMax)});
  for (size_t i = 0; i < rails_.size(); ++i) {
    std::vector<size_t> fitting;
    for (size_t j = 0; j < owner.rails.size(); ++j) {
      const RailDescription& there = owner.rails[j];
      const bool is_reachable = is_here || !is_loopback(there.host_address);
      if (is_reachable && may_pair(rails_[i], there, options_.origin, owner.origin))
        fitting.push_back(j);
    }
    if (fitting.empty()) continue;
    const size_t j = fitting[taken[rails_[i].provider]++ % fitting.size()];
    const RailDescription& there = owner.rails[j];
    const double gbps = std::clamp(std::min(rails_[i].gbps, there.gbps), 0.001, kRailGbpsMax);
    const uint32_t path = scheduler_.add_path({number, rail_numbers_[i], remote[j], gbps, 20});
    if (!fabric_.add_way(path, peer.who, i, there.address).ok()) {
      scheduler_.retire_path(path);
      continue;
    }
    const std::string text =
        rails_[i].provider + " " + rails_[i].host_address + " to " + there.host_address;
    paths_[path] = {&fabric_, number, text, 0, 0, false};
    peer.paths.push_back(path);
    const bool is_near = !is_here || rails_[i].provider == "shm";
    ways.push_back({path, static_cast<uint8_t>(is_near ? 0 : 1)});
  }
  if (!ways.empty()) peer.ways = peer.file_ways = scheduler_.add_ways(std::move(ways));
}

Status Engine::close_segment(uint64_t segment) {
  const Segment* found = segments_.find(segment);
  if (found == nullptr) return Status::error("there is no such segment (any more)");
  const uint64_t peer = found->peer;
  segments_.erase(segment);
  --peers_.find(peer)->segments;
  drop_peer_if_unused(peer);
  return {};
}

/// Nothing of it is kept once no segment and no request is left; fences end first.
void Engine::drop_peer_if_unused(uint64_t number) {
  Peer* peer = peers_.find(number);
  if (peer == nullptr || peer->is_self || peer->segments > 0 || peer->requests > 0) return;
  for (const uint32_t path : peer->paths)
    if (paths_.at(path).open > 0 || paths_.at(path).is_fencing) return;
  for (const uint32_t path : peer->paths) {
    scheduler_.retire_path(path);
    std::erase(fences_wanted_, path);
    paths_.erase(path);
  }
  fabric_.remove_peer(peer->who);
  if (options_.processes != nullptr) options_.processes->forget(number);
  peer_of_.erase(peer->who);
  peers_.erase(number);
}

// ---- Files ----

Result<uint64_t> Engine::ask_for_file(uint64_t segment, const std::string& path, Rights wanted) {
  const Segment* found = segments_.find(segment);
  if (found == nullptr) return Status::error("there is no such segment (any more)");
  if (path.size() > kPathBytesMax)
    return Status::error("the path is longer than " + std::to_string(kPathBytesMax) + " bytes");
  const Peer& peer = *peers_.find(found->peer);
  FileOpened own;
  own.token = ++tokens_;
  if (peer.is_self) {
    own.cause = owned_->exports.open(path, wanted, own.file, own.size_bytes);
    files_[own.token] = own;
  } else if (!fabric_.ask_for_file(peer.who, {own.token, wanted, path})) {
    return Status::error("no way to the segment's owner works now");
  }
  return own.token;
}

std::optional<FileOpened> Engine::take_file(uint64_t token) {
  for (const FileOpened& each : fabric_.take_files()) files_[each.token] = each;
  const auto found = files_.find(token);
  if (found == files_.end()) return std::nullopt;
  const FileOpened opened = found->second;
  files_.erase(found);
  return opened;
}

Result<uint64_t> Engine::add_file(uint64_t segment, const FileOpened& opened) {
  const Segment* found = segments_.find(segment);
  if (found == nullptr) return Status::error("there is no such segment (any more)");
  if (opened.cause != Cause::kNone) return Status::error(cause_name(opened.cause));
  ++peers_.find(found->peer)->segments;
  return segments_.add({found->peer, {}, {}, opened.file, opened.size_bytes});
}

Result<uint64_t> Engine::file_bytes(uint64_t segment) const {
  const Segment* found = segments_.find(segment);
  if (found == nullptr || found->file == 0) return Status::error("this segment is no file");
  return found->file_bytes;
}

std::vector<int> Engine::wait_descriptors() {
  std::vector<int> all = fabric_.wait_descriptors();
  all.push_back(owned_->jobs->descriptor());
  return all;
}

std::pair<size_t, size_t> Engine::ways_up(uint64_t segment) const {
  const Segment* found = segments_.find(segment);
  if (found == nullptr) return {0, 0};
  const Peer& peer = *peers_.find(found->peer);
  if (peer.is_self) return {1, 1};
  const auto count = std::count_if(peer.paths.begin(), peer.paths.end(),
                                   [&](uint32_t path) { return fabric_.is_up(path); });
  return {static_cast<size_t>(count), peer.paths.size()};
}

void Engine::settle(uint64_t segment) {
  const Segment* found = segments_.find(segment);
  if (found == nullptr) return;
  const Peer& peer = *peers_.find(found->peer);
  for (const uint32_t path : peer.paths)
    if (!peer.is_self && !fabric_.is_up(path)) scheduler_.path_failed(path, now_ns_);
}

bool Engine::is_lost(uint64_t segment) const {
  const Segment* found = segments_.find(segment);
  return found == nullptr || peers_.find(found->peer)->is_lost;
}

Result<std::vector<RangeDescription>> Engine::ranges(uint64_t segment) const {
  const Segment* found = segments_.find(segment);
  if (found == nullptr) return Status::error("there is no such segment (any more)");
  if (peers_.find(found->peer)->is_self) return describe().ranges;
  return found->ranges;
}

std::vector<WayExplanation> Engine::explain(uint64_t segment, uint64_t size_bytes,
                                            Urgency urgency) const {
  std::vector<WayExplanation> all;
  const Segment* found = segments_.find(segment);
  if (found == nullptr) return all;
  const Peer& peer = *peers_.find(found->peer);
  for (const WayExplained& way : scheduler_.explain(peer.ways, size_bytes, urgency, now_ns_))
    all.push_back({paths_.at(way.way.path).text, way});
  return all;
}

std::vector<PathStatistics> Engine::paths() const {
  std::vector<PathStatistics> all;
  for (const auto& [id, path] : paths_)
    all.push_back({peers_.find(path.peer)->who, path.text, scheduler_.view(id, now_ns_)});
  return all;
}

}  // namespace braid::transfer
