// Engine: the ways from one place to another, found by a search over the hops of each transport,
// and the time that they would take.
#include <algorithm>
#include <numeric>
#include <utility>

#include "host/addresses.h"
#include "transfer/engine.h"
#include "transfer/failure.h"
#include "transfer/providers.h"

namespace braid::transfer {
namespace {

/// Nothing is known of it: no backend measures it, and braid's copies do not foresee it.
bool is_assumed(const Hop& hop) { return hop.gbps == assumed_cost(hop.kind).gbps; }

HopExplanation explain_hop(const Hop& hop, std::string text, double size_bytes) {
  return {std::move(text), hop.latency_us + size_bytes / (hop.gbps * 1e3)};
}

/// `copies`: of which the chain is one.
LegExplanation explain_leg(const Ends& ends, const std::vector<Hop>& chain,
                           const std::vector<CopyPath>& copies, uint64_t size_bytes) {
  LegExplanation leg;
  double all_bytes = 0, bytes = 0;
  for (const CopyPath& path : copies) {
    const bool is_this = (path.nvlink_gbps > 0 ? path.gpu : -1) == relay_of(chain);
    all_bytes += static_cast<double>(path.size_bytes);
    if (is_this) bytes = static_cast<double>(path.size_bytes);
  }
  leg.part = bytes / all_bytes;
  leg.gbps = chain.front().gbps;
  for (const Hop& hop : chain) {
    leg.gbps = std::min(leg.gbps, hop.gbps);
    leg.hops.push_back(explain_hop(hop,
                                   stop_name(hop.from, ends) + " to " + stop_name(hop.to, ends),
                                   leg.part * static_cast<double>(size_bytes)));
  }
  return leg;
}

}  // namespace

// ---- Ends ----

/// In the own segment, the memory that is registered now.
Endpoint Engine::endpoint_of(const Segment& segment, uint64_t address, uint64_t size_bytes) const {
  Endpoint end;
  end.is_file = segment.file != 0;
  end.folder = segment.folder;
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
  const auto& own = peers_.find(segment.peer)->own;
  const auto mapped = own.find(HopKind::kMapped);
  end.is_mapped = mapped != own.end() && mapped_.has(mapped->second, address);
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

/// A way for each transport that needs no rail, and for each other one a way for each of our rails
/// that can take part. The soonest transports have the lowest rank, the nearest NICs the lowest
/// tier.
Cause Engine::find_ways(uint64_t number, const Ends& ends, std::vector<Way>& ways) {
  const Peer& peer = *peers_.find(number);
  Cause wrong = Cause::kNoWay;
  for (const Transport& transport : transports_between(ends, links_to(peer))) {
    if (transport.carrier == HopKind::kRail) {
      const Cause why = add_rail_ways(number, ends, transport, ways);
      if (why != Cause::kNone) wrong = why;
      continue;
    }
    const uint32_t path = transport.carrier == HopKind::kFile
                              ? path_of_folder(number, ends.there.folder)
                              : peer.own.at(transport.carrier);
    ways.push_back(
        {transport.is_through_host ? path_through_host(number, path) : path, 0, transport.rank});
  }
  return ways.empty() ? wrong : Cause::kNone;
}

/// kNone, or why a pair has no way.
Cause Engine::add_rail_ways(uint64_t number, const Ends& ends, const Transport& transport,
                            std::vector<Way>& ways) {
  const Peer& peer = *peers_.find(number);
  std::vector<size_t> ours, theirs;
  std::vector<Place> our_places, their_places;
  for (size_t i = 0; i < rails_.size(); ++i) {
    const bool is_reached = transport.is_through_host || (ends.here.rails >> i & 1) != 0;
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
  if (theirs.empty()) return Cause::kNone;
  const std::vector<uint8_t> near = tiers(ends.here.place, our_places, options_.places.distances());
  const std::vector<uint8_t> far = tiers(ends.there.place, their_places, peer.distances);
  Cause wrong = Cause::kNone;
  for (const NicPair& pair : pairs_between(near, far, pair_up(our_places, their_places)))
    if (const auto path = path_between(number, ours[pair.ours], theirs[pair.theirs]))
      ways.push_back({transport.is_through_host ? path_through_host(number, *path) : *path,
                      pair.tier, transport.rank});
    else if (peer.other_version.contains({ours[pair.ours], theirs[pair.theirs]}))
      wrong = Cause::kOtherVersion;
  return wrong;
}

// ---- Rails and paths ----

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

Links Engine::links_to(const Peer& peer) const {
  Links links{peer.is_self};
  for (const RailDescription& rail : rails_)
    if (const double gbps = peer.is_self ? 0 : gbps_of(peer, rail.provider); gbps > 0)
      links.gbps[rail.provider] = gbps;
  return links;
}

std::optional<uint32_t> Engine::path_between(uint64_t number, size_t ours, size_t theirs) {
  Peer& peer = *peers_.find(number);
  const auto known = peer.path_of_pair.find({ours, theirs});
  if (known != peer.path_of_pair.end()) return known->second;
  if (peer.other_version.contains({ours, theirs})) return std::nullopt;
  const RailDescription& there = peer.rails[theirs];
  const double gbps = std::clamp(std::min(rails_[ours].gbps, there.gbps), 0.001, 1000.0);
  PathSpec spec{number, rail_numbers_[ours], peer.rail_numbers[theirs], gbps,
                assumed_cost(HopKind::kRail).latency_us};
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
  added.backend_way = path;
  paths_[path] = std::move(added);
  peer.paths.push_back(path);
  peer.path_of_pair[{ours, theirs}] = path;
  // A path that is found later is still being dialled: slices take the other paths meanwhile.
  if (peer.segments > 0) scheduler_.path_failed(path, now_ns_);
  return path;
}

/// Files of a folder whose file system does not answer, or slowly, hold up no others.
uint32_t Engine::path_of_folder(uint64_t number, uint64_t folder) {
  const auto [known, is_new] = peers_.find(number)->own_folders.try_emplace(folder);
  if (is_new)
    known->second = add_own_path(number, HopKind::kFile, file_,
                                 "folder " + owned_->exports.name_of(folder) + " of this process");
  return known->second;
}

uint32_t Engine::path_through_host(uint64_t number, uint32_t below) {
  Peer& peer = *peers_.find(number);
  const auto known = peer.through_host.find(below);
  if (known != peer.through_host.end()) return known->second;
  const Path& under = paths_.at(below);
  Path added{under.backend, number, under.text + " through host memory", under.carrier,
             under.provider};
  added.backend_way = below;
  added.is_through_host = true;
  const PathView view = scheduler_.view(below, now_ns_);
  const uint32_t rail = scheduler_.add_rail({view.rate_gbps});
  peer.own_rails.push_back(rail);
  PathSpec spec{number, rail, kNoRail, view.rate_gbps,
                view.base_latency_us + assumed_cost(HopKind::kCopy).latency_us};
  spec.is_certain = under.backend != &fabric_;  // as the path below
  spec.is_measured_by_probes = false;           // a probe is not copied to a GPU
  const uint32_t path = scheduler_.add_path(spec);
  const bool is_usable = is_up(added);
  paths_[path] = std::move(added);
  peer.paths.push_back(path);
  peer.through_host[below] = path;
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
  ends.there.folder = found->folder;
  const auto& own = peers_.find(found->peer)->own;
  const auto mapped = own.find(HopKind::kMapped);
  ends.there.is_mapped =
      !ends.there.is_file && mapped != own.end() && mapped_.has_some(mapped->second);
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
  Links links = links_to(*peers_.find(peer));
  if (links.is_self) links.copies = copies_between(ends, size_bytes);
  const std::vector<Transport> transports = transports_between(ends, links);
  for (const WayExplained& way : scheduler_.explain(ways, size_bytes, urgency, now_ns_)) {
    const Path& path = paths_.at(way.way.path);
    all.push_back({path.text, way, {}, 0});
    const auto transport = std::find_if(transports.begin(), transports.end(),
                                        [&](const Transport& each) { return path.is(each); });
    if (transport == transports.end()) continue;
    explain_hops(ends, transport->hops, size_bytes, all.back());
    if (transport->beside.empty()) continue;
    all.back().legs = {explain_leg(ends, transport->hops, links.copies, size_bytes)};
    for (const std::vector<Hop>& chain : transport->beside)
      all.back().legs.push_back(explain_leg(ends, chain, links.copies, size_bytes));
  }
  return all;
}

/// Of the copies that the request would be cut into. Those of chunks are too small to be spread.
std::vector<CopyPath> Engine::copies_between(const Ends& ends, uint64_t size_bytes) const {
  const bool is_to_gpu = ends.target().place.is_gpu;
  const Place& place = (is_to_gpu ? ends.target() : ends.source()).place;
  if (!options_.copy_paths || !place.is_gpu || place.gpu < 0) return {};
  const uint64_t copy_bytes = ends.there.is_file ? kChunkBytes : kCopyBytesMin;
  return options_.copy_paths(place.gpu, is_to_gpu, std::min(size_bytes, copy_bytes));
}

/// Of the main hop the rate is measured. Of a file of a peer that is the rail's, and it holds what
/// the owner's file system takes: a slice ends once it was read and has come, or was written.
void Engine::explain_hops(const Ends& ends, std::vector<Hop> hops, uint64_t size_bytes,
                          WayExplanation& way) const {
  const Path& path = paths_.at(way.way.way.path);
  const PathView view = scheduler_.view(way.way.way.path, now_ns_);
  for (Hop& hop : hops) {
    std::string text = stop_name(hop.from, ends) + " to " + stop_name(hop.to, ends);
    if (hop.kind == path.carrier) {
      hop.gbps = view.rate_gbps;
      hop.latency_us = view.base_latency_us;
      const std::string& by = paths_.at(path.backend_way).text;
      text = hop.kind == HopKind::kRail ? by : text + ", " + by;
    } else if (is_assumed(hop)) {
      text += ", assumed";
    }
    way.hops.push_back(explain_hop(hop, std::move(text), static_cast<double>(size_bytes)));
  }
  std::vector<size_t> route(hops.size());
  std::iota(route.begin(), route.end(), size_t{0});
  way.finish_us = finish_us(hops, route, size_bytes, kChunkBytes);
}

}  // namespace braid::transfer
