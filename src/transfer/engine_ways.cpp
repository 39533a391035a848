// Engine: the ways from one place to another, found by a search over the hops of each transport,
// and the time that they would take.
#include <algorithm>
#include <numeric>
#include <set>
#include <utility>

#include "transfer/engine.h"
#include "transfer/failure.h"
#include "transfer/providers.h"

namespace braid::transfer {
namespace {

// Assumed rates and latencies, until they are measured.
constexpr double kCopyGbps = 25;  // of a GPU's PCIe link
constexpr double kCopyLatencyUs = 10;
constexpr double kWireLatencyUs = 20;
constexpr double kSharedLatencyUs = 5;
constexpr double kBetweenGpusGbps = 100;
constexpr double kIntoHostGbps = 2;  // of `local`, through a queue that two processes share
// The size by which transports are ranked. Once they are used, their rates are measured.
constexpr uint64_t kTypicalBytes = 64 << 20;
constexpr uint64_t kChunkBytes = 512 << 10;

// Places of the graph. Host memory at an end is that end.
constexpr uint32_t kSource = 0, kSourceHost = 1, kTargetHost = 2, kTarget = 3;
constexpr uint32_t kCopy = ~uint32_t{0};  // the transport of copies

/// A loopback address cannot be reached from another host.
bool is_loopback(const std::string& address) {
  return address.starts_with("127.") || address == "::1" || address == "localhost";
}

Hop copy_between(uint32_t from, uint32_t to) {
  return {from, to, kCopyGbps, kCopyLatencyUs, kCopy};
}

}  // namespace

// ---- Ends ----

/// In the own segment, the memory that is registered now.
Endpoint Engine::endpoint_of(const Segment& segment, uint64_t address, uint64_t size_bytes) const {
  Endpoint end;
  end.is_file = segment.file != 0;
  if (end.is_file) return end;
  if (peers_.find(segment.peer)->is_self) {
    const Buffer* buffer = owned_->buffers.containing(address, size_bytes);
    return buffer == nullptr ? end : endpoint_of(*buffer);
  }
  const auto next = std::upper_bound(
      segment.ranges.begin(), segment.ranges.end(), address,
      [](uint64_t wanted, const RangeDescription& range) { return wanted < range.address; });
  end.is_known = next != segment.ranges.begin() &&
                 address - std::prev(next)->address < std::prev(next)->size_bytes;
  if (!end.is_known) return end;
  const size_t place = std::prev(next)->place;
  if (place < segment.places.size()) {
    end.place = segment.places[place].place;
    end.rails = segment.places[place].rails;
  }
  const Peer& peer = *peers_.find(segment.peer);
  end.is_mapped = peer.mapped && mapped_.has(*peer.mapped, address);
  return end;
}

/// kNone, and the ways; otherwise why there are none.
Cause Engine::ways_between(uint64_t number, const Ends& ends, uint32_t& ways) {
  Peer& peer = *peers_.find(number);
  if (!peer.last_ways || peer.last_ways->first != ends) {
    auto known = peer.ways.find(ends);
    if (known == peer.ways.end()) {
      std::vector<Way> found;
      if (const Cause wrong = find_ways(number, ends, found); wrong != Cause::kNone) return wrong;
      known = peer.ways.emplace(ends, scheduler_.add_ways(std::move(found))).first;
    }
    peer.last_ways = *known;
  }
  ways = peer.last_ways->second;
  return Cause::kNone;
}

/// Mapped memory first, and behind it one pair for each of our rails that can take part: the
/// soonest transports have the lowest rank, the nearest NICs the lowest tier.
Cause Engine::find_ways(uint64_t number, const Ends& ends, std::vector<Way>& ways) {
  const Peer& peer = *peers_.find(number);
  const bool is_on_gpu = ends.here.place.is_gpu || ends.there.place.is_gpu;
  if (peer.is_self) {
    ways = {{ends.there.is_file ? peer.files : is_on_gpu ? peer.copies : peer.memory, 0}};
    return Cause::kNone;
  }
  Cause wrong = Cause::kNoWay;
  if (ends.there.is_mapped && !ends.here.place.is_gpu) ways.push_back({*peer.mapped, 0, 0});
  const size_t better = ways.size();
  for (const Transport& transport : transports_between(peer, ends)) {
    const bool is_direct = !ends.here.place.is_gpu || reaches_gpus(transport.provider);
    std::vector<size_t> ours, theirs;
    std::vector<Place> our_places, their_places;
    for (size_t i = 0; i < rails_.size(); ++i) {
      const bool is_reached = !is_direct || (ends.here.rails >> i & 1) != 0;
      if (rails_[i].provider != transport.provider || !is_reached) continue;
      ours.push_back(i);
      our_places.push_back(rails_[i].place);
    }
    for (size_t j = 0; j < peer.rails.size(); ++j) {
      if (ours.empty() || (ends.there.rails >> j & 1) == 0 || !may_pair(peer, ours.front(), j))
        continue;
      theirs.push_back(j);
      their_places.push_back(peer.rails[j].place);
    }
    if (theirs.empty()) continue;
    const std::vector<uint8_t> near = tiers(ends.here.place, our_places);
    const std::vector<uint8_t> far = tiers(ends.there.place, their_places);
    for (const NicPair& pair : pairs_between(near, far, pair_up(our_places, their_places)))
      if (const auto path = path_between(number, ours[pair.ours], theirs[pair.theirs]))
        ways.push_back({is_direct ? *path : path_through_host(number, *path), pair.tier,
                        static_cast<uint8_t>(transport.rank + better)});
      else if (peer.other_version.contains({ours[pair.ours], theirs[pair.theirs]}))
        wrong = Cause::kOtherVersion;
  }
  return ways.empty() ? wrong : Cause::kNone;
}

// ---- Transports ----

bool Engine::may_pair(const Peer& peer, size_t ours, size_t theirs) const {
  const RailDescription& here = rails_[ours];
  const RailDescription& there = peer.rails[theirs];
  if (here.provider != there.provider) return false;
  if (!stays_in_host(here.provider)) return peer.is_here || !is_loopback(there.host_address);
  const fabric::Origin& us = options_.origin;
  const bool is_same_process = us.process == peer.origin.process &&
                               us.started == peer.origin.started &&
                               us.pid_namespace == peer.origin.pid_namespace;
  // shm would share mappings with itself.
  return peer.is_here && (here.provider == kLocal || !is_same_process);
}

/// The rate of all pairs together; 0: there are none.
double Engine::gbps_of(const Peer& peer, const std::string& provider) const {
  double ours = 0, theirs = 0;
  for (size_t i = 0; i < rails_.size(); ++i) {
    if (rails_[i].provider != provider) continue;
    ours += rails_[i].gbps;
    theirs = 0;
    for (size_t j = 0; j < peer.rails.size(); ++j)
      if (may_pair(peer, i, j)) theirs += std::max(peer.rails[j].gbps, 0.001);
  }
  return std::min(ours, theirs);
}

/// The provider's own hop and its copies. If rails reach only host memory, this side can copy to
/// and from its own GPU, and the owner copies by itself on rails that stage.
std::vector<Hop> Engine::hops_of(const std::string& provider, const Ends& ends, double gbps) {
  const bool is_from_gpu = ends.source().place.is_gpu, is_to_gpu = ends.target().place.is_gpu;
  if (provider == kLocal) {
    const double local_gbps = !is_to_gpu    ? kIntoHostGbps
                              : is_from_gpu ? kBetweenGpusGbps
                                            : kCopyGbps;
    return {{kSource, kTarget, local_gbps, kCopyLatencyUs, 0}};
  }
  const bool is_their_gpu = ends.there.place.is_gpu;
  if (is_their_gpu && !is_staged(provider)) return {};
  const double latency_us = stays_in_host(provider) ? kSharedLatencyUs : kWireLatencyUs;
  return {{is_from_gpu ? kSourceHost : kSource, is_to_gpu ? kTargetHost : kTarget, gbps, latency_us,
           0}};
}

std::vector<Transport> Engine::transports_between(const Peer& peer, const Ends& ends) const {
  std::set<std::string> providers;
  bool may_reach_gpus = false, may_reach_hosts = false;
  for (const RailDescription& rail : rails_) {
    if (gbps_of(peer, rail.provider) == 0) continue;
    providers.insert(rail.provider);
    (reaches_gpus(rail.provider) ? may_reach_gpus : may_reach_hosts) = true;
  }
  const bool is_on_gpu = ends.here.place.is_gpu || ends.there.place.is_gpu;
  // Memory that was registered later may be GPU memory.
  const bool wants_gpu_rails = is_on_gpu || (!ends.there.is_known && may_reach_gpus);
  std::vector<std::string> names;
  std::vector<Hop> hops;
  if (ends.source().place.is_gpu) hops.push_back(copy_between(kSource, kSourceHost));
  if (ends.target().place.is_gpu) hops.push_back(copy_between(kTargetHost, kTarget));
  for (const std::string& provider : providers) {
    const bool is_for_gpus = reaches_gpus(provider);
    const bool is_left_out = is_for_gpus
                                 ? !wants_gpu_rails && may_reach_hosts
                                 : (wants_gpu_rails && providers.contains(provider + kStaged)) ||
                                       (wants_gpu_rails && !is_on_gpu);
    if (is_left_out) continue;
    for (Hop hop : hops_of(provider, ends, gbps_of(peer, provider))) {
      hop.transport = static_cast<uint32_t>(names.size());
      hops.push_back(hop);
    }
    names.push_back(provider);
  }
  std::vector<Transport> found;
  for (const Route& route : find_routes(hops, kSource, kTarget, kTypicalBytes, kChunkBytes)) {
    Transport transport;
    for (const size_t hop : route.hops) {
      transport.hops.push_back(hops[hop]);
      if (hops[hop].transport != kCopy) transport.provider = names[hops[hop].transport];
    }
    if (!found.empty()) {
      const Transport& before = found.back();
      const bool is_alike = before.hops.size() == transport.hops.size() &&
                            stays_in_host(before.provider) == stays_in_host(transport.provider);
      transport.rank = static_cast<uint8_t>(before.rank + (is_alike ? 0 : 1));
    }
    found.push_back(std::move(transport));
  }
  return found;
}

std::optional<uint32_t> Engine::path_between(uint64_t number, size_t ours, size_t theirs) {
  Peer& peer = *peers_.find(number);
  const auto known = peer.path_of_pair.find({ours, theirs});
  if (known != peer.path_of_pair.end()) return known->second;
  if (peer.other_version.contains({ours, theirs})) return std::nullopt;
  const RailDescription& there = peer.rails[theirs];
  const double gbps = std::clamp(std::min(rails_[ours].gbps, there.gbps), 0.001, 1000.0);
  PathSpec spec{number, rail_numbers_[ours], peer.rail_numbers[theirs], gbps, kWireLatencyUs};
  const uint32_t path = scheduler_.add_path(spec);
  if (const Status added = fabric_.add_way(path, peer.who, ours, there.address); !added.ok()) {
    scheduler_.retire_path(path);
    if (cause_of(added) == Cause::kOtherVersion) peer.other_version.insert({ours, theirs});
    return std::nullopt;
  }
  Path added;
  added.backend = &fabric_;
  added.peer = number;
  added.text = rail_name(ours) + " to " + there.host_address;
  added.provider = rails_[ours].provider;
  added.reaches_gpus = reaches_gpus(added.provider);
  added.rail_way = path;
  paths_[path] = std::move(added);
  peer.paths.push_back(path);
  peer.path_of_pair[{ours, theirs}] = path;
  // A path that is found later is still being dialled: slices take the other paths meanwhile.
  if (peer.segments > 0) scheduler_.path_failed(path, now_ns_);
  return path;
}

uint32_t Engine::path_through_host(uint64_t number, uint32_t rail_path) {
  Peer& peer = *peers_.find(number);
  const auto known = peer.through_host.find(rail_path);
  if (known != peer.through_host.end()) return known->second;
  Path added = paths_.at(rail_path);
  added.is_through_host = true;
  added.open = 0;
  added.fence_ns = 0;
  added.is_fencing = false;
  added.text += " through host memory";
  const PathView view = scheduler_.view(rail_path, now_ns_);
  const uint32_t rail = scheduler_.add_rail({view.rate_gbps});
  peer.own_rails.push_back(rail);
  PathSpec spec{number, rail, kNoRail, view.rate_gbps, kWireLatencyUs + kCopyLatencyUs};
  spec.is_measured_by_probes = false;  // a probe is not copied to a GPU
  const uint32_t path = scheduler_.add_path(spec);
  const bool is_usable = is_up(added);
  paths_[path] = std::move(added);
  peer.paths.push_back(path);
  peer.through_host[rail_path] = path;
  if (!is_usable) scheduler_.path_failed(path, now_ns_);
  return path;
}

// ---- What is seen ----

std::vector<WayExplanation> Engine::explain(uint64_t segment, uint64_t size_bytes,
                                            Urgency urgency) {
  const Segment* found = segments_.find(segment);
  if (found == nullptr) return {};
  Ends ends;
  ends.there.is_file = found->file != 0;
  const Peer& peer = *peers_.find(found->peer);
  ends.there.is_mapped = !ends.there.is_file && peer.mapped && mapped_.has_some(*peer.mapped);
  return explain(found->peer, ends, size_bytes, urgency);
}

Result<std::vector<WayExplanation>> Engine::explain(const Request& request) {
  const Segment* segment = nullptr;
  const Buffer* buffer = nullptr;
  const Cause wrong = check_request(request, segment, buffer);
  if (wrong != Cause::kNone) return failure(wrong);
  const Ends ends{request.operation, endpoint_of(*buffer),
                  endpoint_of(*segment, request.address, request.size_bytes)};
  uint32_t ways = 0;
  if (const Cause none = ways_between(segment->peer, ends, ways); none != Cause::kNone)
    return failure(none);
  return explain(segment->peer, ends, request.size_bytes, request.urgency);
}

std::vector<WayExplanation> Engine::explain(uint64_t peer, const Ends& ends, uint64_t size_bytes,
                                            Urgency urgency) {
  std::vector<WayExplanation> all;
  uint32_t ways = 0;
  if (ways_between(peer, ends, ways) != Cause::kNone) return all;
  for (const WayExplained& way : scheduler_.explain(ways, size_bytes, urgency, now_ns_)) {
    all.push_back({paths_.at(way.way.path).text, way, {}, 0});
    explain_hops(ends, size_bytes, all.back());
  }
  return all;
}

void Engine::explain_hops(const Ends& ends, uint64_t size_bytes, WayExplanation& way) const {
  const Path& path = paths_.at(way.way.way.path);
  const PathView view = scheduler_.view(way.way.way.path, now_ns_);
  const auto name = [](const Endpoint& end) {
    if (end.is_file) return std::string("a file");
    return end.place.is_gpu ? "GPU " + std::to_string(end.place.gpu) : "host memory";
  };
  const bool is_rail = path.backend == &fabric_;
  const bool is_copied = path.backend != &fabric_ && path.reaches_gpus;
  const bool has_stages = path.provider != kLocal && !is_copied;
  std::vector<Hop> hops;
  const auto add = [&](std::string text, double gbps, double latency_us) {
    hops.push_back({0, 0, gbps, latency_us, 0});
    const double us = latency_us + static_cast<double>(size_bytes) / (gbps * 1e3);
    way.hops.push_back({std::move(text), us});
  };
  if (ends.source().place.is_gpu && has_stages)
    add(name(ends.source()) + " to host memory", kCopyGbps, kCopyLatencyUs);
  const auto stop = [&](const Endpoint& end) {
    return end.place.is_gpu && has_stages ? std::string("host memory") : name(end);
  };
  add(is_rail ? path.text : stop(ends.source()) + " to " + stop(ends.target()) + ", " + path.text,
      view.rate_gbps, view.base_latency_us);
  if (ends.target().place.is_gpu && has_stages)
    add("host memory to " + name(ends.target()), kCopyGbps, kCopyLatencyUs);
  std::vector<size_t> route(hops.size());
  std::iota(route.begin(), route.end(), size_t{0});
  way.finish_us = finish_us(hops, route, size_bytes, kChunkBytes);
}

}  // namespace braid::transfer
