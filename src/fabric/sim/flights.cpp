// Network: the way of a posting, and the faults that stop it.
#include "fabric/sim/network.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "fabric/sim/parts.h"

namespace braid::fabric::sim {

Network::Network(simulation::Simulation& simulation, uint64_t seed, NetworkOptions options)
    : simulation_(simulation), random_(seed), options_(options) {}

Network::~Network() = default;

int Network::add_host(std::function<void()> wake) {
  hosts_.push_back(std::make_unique<Host>());
  hosts_.back()->wake = std::move(wake);
  return static_cast<int>(hosts_.size()) - 1;
}

std::unique_ptr<Domain> Network::open_domain(int host, uint64_t place,
                                             std::optional<double> link_gbps) {
  const double speed_gbps = link_gbps.value_or(options_.link_gbps);
  auto nic = std::make_unique<Nic>();
  nic->id = nics_.size();
  nic->host = host;
  nic->out = simulation_.flows().add_resource(speed_gbps);
  nic->in = simulation_.flows().add_resource(speed_gbps);
  nic->traits = {"simulated", options_.removal_fences, options_.closing_fences};
  nic->traits.postings_max = options_.postings_max;
  nic->traits.segments_max = options_.segments_max;
  nic->traits.answers_writes = options_.answers_writes;
  nic->traits.batched_writes_max = options_.batched_writes_max;
  nic->place = place;
  nic->region_bytes_max = options_.region_bytes_max;
  places_[place] = {nic->id, host};
  nics_.push_back(std::move(nic));
  return std::make_unique<SimulatedDomain>(*this, *nics_.back());
}

Network::Nic* Network::find_place(uint64_t place) {
  const auto found = places_.find(place);
  return found == places_.end() ? nullptr : find(found->second.first);
}

bool Network::has_ended_silently(uint64_t place) const {
  const auto found = places_.find(place);
  return found != places_.end() && hosts_[found->second.second]->end == Break::kSilent;
}

// ---- Faults ----

void Network::pause(int host) { hosts_[host]->paused = true; }

void Network::resume(int host) {
  hosts_[host]->paused = false;
  run_later(hosts_[host]->held);
  hosts_[host]->wake();
}

void Network::crash(int host, Break others_see) {
  hosts_[host]->end = others_see;
  hosts_[host]->paused = false;
  hosts_[host]->held.clear();
}

Network::Nic& Network::nic_of(const Domain& domain) {
  return *find(static_cast<const SimulatedDomain&>(domain).id());
}

void Network::deny_access(const Domain& domain, Bytes memory) {
  nic_of(domain).denied.push_back(memory);
}

void Network::allow_access(const Domain& domain) { nic_of(domain).denied.clear(); }

void Network::limit_regions(const Domain& domain, size_t size_bytes_max) {
  nic_of(domain).region_bytes_max = size_bytes_max;
}

void Network::cut(const Domain& domain, Break how) {
  Nic& broken = nic_of(domain);
  broken.cut = how;
  if (how != Break::kFails) return;
  for (const auto& nic : nics_) {
    if (nic == nullptr) continue;
    for (const std::shared_ptr<Flight>& flight : std::vector(nic->flights))
      if (nic.get() == &broken || flight->to == broken.place) fail(flight);
  }
}

void Network::mend(const Domain& domain) {
  Nic& nic = nic_of(domain);
  nic.cut.reset();
  run_later(nic.held_until_mended);
}

// The domain is gone: nobody reads its sources, but what is in the network may still land.
void Network::close(Nic& nic) {
  for (const std::shared_ptr<Flight>& flight : nic.flights) {
    if (!has_ended_) leave_ghost(*flight);
    flight->has_ended = true;
  }
  nics_[nic.id].reset();
}

void Network::run_later(std::vector<std::function<void()>>& held) {
  for (std::function<void()>& go_on : std::exchange(held, {}))
    simulation_.after_us(some_latency_us(), std::move(go_on));
}

/// True: the posting cannot go on now. `go_on` is called once the obstacle is gone, which may be
/// never.
template <typename GoOn>
bool Network::is_held_up(const std::shared_ptr<Flight>& flight, const GoOn& go_on) {
  if (flight->has_ended) return true;
  const auto unless_ended = [flight, go_on] {
    if (!flight->has_ended) go_on();
  };
  Nic& from = *find(flight->from);
  Host& sender = *hosts_[from.host];
  if (is_cut(flight, from, unless_ended)) return true;
  if (sender.paused && options_.stops_with_process) {
    sender.held.push_back(unless_ended);
    return true;
  }
  Nic* to = find_place(flight->to);
  if (to == nullptr) {
    if (!has_ended_silently(flight->to)) finish(flight, false);
    return true;
  }
  return is_cut(flight, *to, unless_ended);
}

template <typename GoOn>
bool Network::is_cut(const std::shared_ptr<Flight>& flight, Nic& nic, const GoOn& go_on) {
  if (!nic.cut) return false;
  if (*nic.cut == Break::kStalls) nic.held_until_mended.push_back(go_on);
  if (*nic.cut == Break::kFails) fail(flight);
  if (*nic.cut == Break::kSwallows && flight->is_message) complete(flight, true);
  return true;
}

// ---- The way of a posting ----

double Network::some_latency_us() {
  return options_.latency_us_min +
         random_.unit() * (options_.latency_us_max - options_.latency_us_min);
}

int Network::class_between(const Nic& from, const Nic& to) {
  const auto [place, is_new] = classes_.try_emplace({from.id, to.id}, 0);
  if (is_new) place->second = simulation_.flows().add_class({from.out, to.in}, 0);
  return place->second;
}

void Network::depart(const std::shared_ptr<Flight>& flight) {
  Nic& from = *find(flight->from);
  from.flights.push_back(flight);
  const auto arrives = [this, flight] {
    simulation_.after_us(some_latency_us(), [this, flight] { arrive(flight); });
  };
  if (const Nic* to = find_place(flight->to))
    simulation_.flow(class_between(from, *to), flight->size_bytes, arrives);
  else
    arrives();
}

void Network::arrive(const std::shared_ptr<Flight>& flight) {
  if (is_held_up(flight, [this, flight] { arrive(flight); })) return;
  flight->is_message ? land_message(flight) : begin_landing(flight);
}

void Network::begin_landing(const std::shared_ptr<Flight>& flight) {
  uint64_t left = flight->missing;
  while (left != 0) {
    const uint64_t pieces = random_.chance(0.4) ? left : left & random_.next();
    left &= ~pieces;
    if (pieces != 0)
      simulation_.after_us(random_.unit() * options_.landing_us_max,
                           [this, flight, pieces] { land(flight, pieces); });
  }
}

void Network::land(const std::shared_ptr<Flight>& flight, uint64_t pieces) {
  if (flight->has_ended) {
    if (flight->is_ghost && find_target(*flight)) copy(*flight, pieces);
    return;
  }
  const auto again = [this, flight, pieces] { land(flight, pieces); };
  if (is_held_up(flight, again)) return;
  Nic& to = *find_place(flight->to);
  if (options_.lands_when_polled && polled_ != &to) {
    to.held_until_polled.push_back([flight, again] {
      if (!flight->has_ended) again();
    });
    return wake(to);
  }
  if (!find_target(*flight)) return fail(flight);
  copy(*flight, pieces);
  flight->missing &= ~pieces;
  if (flight->missing == 0) announce(flight);
}

/// False: the peer may not write there (any more).
bool Network::find_target(Flight& flight) {
  const bool has_begun = !flight.targets.empty();
  Nic* to = has_begun ? find(flight.landed_at) : find_place(flight.to);
  if (to == nullptr) return false;
  const bool is_shut = flight.door != kNoDoor && !to->doors.contains(flight.door);
  const bool is_drained = options_.closing_fences && !to->closing_doors.contains(flight.door);
  if (is_shut && (!has_begun || is_drained)) return false;
  if (has_begun && !options_.removal_fences) return true;
  for (const auto& [index, region] : to->regions) {
    if (region.range.key != flight.target_key || region.access != Access::kRemoteWrite) continue;
    if (region.door != kNoDoor && region.door != flight.door) return false;
    if (to->denies(region.memory)) return false;
    std::vector<std::byte*> targets;
    for (const Segment& segment : flight.segments) {
      const uint64_t offset = segment.target_address - region.range.base;
      if (offset > region.memory.size() || segment.source.size() > region.memory.size() - offset)
        return false;
      targets.push_back(region.memory.data() + offset);
    }
    flight.targets = std::move(targets);
    flight.landed_at = to->id;
    return true;
  }
  return false;
}

void Network::copy(const Flight& flight, uint64_t pieces) {
  for (uint64_t piece = 0; piece < 64; ++piece) {
    if ((pieces >> piece & 1) == 0) continue;
    const uint64_t first = piece * flight.piece_bytes;
    copy(flight, first, std::min(first + flight.piece_bytes, flight.size_bytes));
  }
}

/// Copies bytes `first` to `last` of the segments, laid end to end.
void Network::copy(const Flight& flight, uint64_t first, uint64_t last) {
  uint64_t begin = 0;  // of the segment
  for (size_t i = 0; i < flight.segments.size(); ++i) {
    const Bytes whole = flight.segments[i].source;
    const uint64_t from = std::max(first, begin), to = std::min(last, begin + whole.size());
    if (from < to) {
      std::byte* target = flight.targets[i] + (from - begin);
      const std::byte* source =
          flight.is_ghost ? flight.snapshot.data() + from : whole.data() + (from - begin);
      if (on_landing) on_landing({target, to - from});
      std::memcpy(target, source, to - from);
    }
    begin += whole.size();
  }
}

/// All bytes have landed: delivers the immediate and the completion, in any order.
void Network::announce(const std::shared_ptr<Flight>& flight) {
  if (flight->immediate)
    simulation_.after_us(some_latency_us(), [this, flight] {
      Nic* to = find(flight->landed_at);  // not a later one at the same place: the bytes are here
      const bool is_lost = flight->has_ended && flight->is_ghost && random_.chance(0.5);
      if (to != nullptr && !is_lost)
        deliver(*to, {Event::kImmediate, true, *flight->immediate, 0, 0, flight->slices});
    });
  finish(flight, true);
}

/// The completion comes back as the posting went: it may be held up, or lost.
void Network::finish(const std::shared_ptr<Flight>& flight, bool ok) {
  simulation_.after_us(some_latency_us(), [this, flight, ok] {
    if (flight->has_ended) return;
    Nic& from = *find(flight->from);
    if (is_cut(flight, from, [this, flight, ok] { finish(flight, ok); })) return;
    complete(flight, ok);
  });
}

void Network::fail(const std::shared_ptr<Flight>& flight) {
  if (flight->has_ended) return;
  leave_ghost(*flight);
  complete(flight, false);
}

void Network::complete(const std::shared_ptr<Flight>& flight, bool ok) {
  flight->has_ended = true;
  Nic& from = *find(flight->from);
  std::erase(from.flights, flight);
  deliver(from, {Event::kPosted, ok, 0, 0, flight->context});
}

void Network::leave_ghost(Flight& flight) {
  flight.is_ghost = random_.chance(0.7);
  if (!flight.is_ghost) return;
  for (const Segment& segment : flight.segments)
    flight.snapshot.insert(flight.snapshot.end(), segment.source.begin(), segment.source.end());
}

void Network::land_message(const std::shared_ptr<Flight>& flight) {
  Nic& to = *find_place(flight->to);
  to.messages.push_back(flight);
  match_messages(to);
}

void Network::match_messages(Nic& nic) {
  std::erase_if(nic.messages, [](const auto& flight) { return flight->has_ended; });
  while (!nic.messages.empty() && !nic.buffers.empty()) {
    const std::shared_ptr<Flight> flight = nic.messages.front();
    nic.messages.erase(nic.messages.begin());
    const Bytes message = flight->segments.front().source;
    if (message.size() > nic.buffers.front().memory.size()) {
      finish(flight, false);
      continue;
    }
    const Nic::Buffer buffer = nic.buffers.front();
    nic.buffers.pop_front();
    std::memcpy(buffer.memory.data(), message.data(), message.size());
    deliver(nic, {Event::kReceived, true, 0, message.size(), buffer.context});
    finish(flight, true);
  }
}

void Network::deliver(Nic& nic, const Completion& completion) {
  nic.completions.push_back(completion);
  wake(nic);
}

void Network::wake(const Nic& nic) {
  const Host& host = *hosts_[nic.host];
  if (!host.paused) host.wake();
}

}  // namespace braid::fabric::sim
