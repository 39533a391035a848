// World: processes that run, pause, crash and come back.
#include "fabric/world.h"

#include <algorithm>
#include <cstdio>
#include <utility>

#include "fabric/world_parts.h"

namespace braid::fabric::test {
namespace {

constexpr double kFaultsEndUs = 3000;
constexpr double kBusyUntilUs = 400;  // when most is under way
constexpr double kBeginUntilUs = 8000;
constexpr double kBeginAtLatestUs = 35'000;
constexpr double kBeatsEndUs = 60'000;  // all deadlines have passed; beats and probes go on
constexpr uint64_t kConnectNs = 20'000'000;
constexpr double kEndUs = 300'000;  // a rail that is broken for good is probed for ever

}  // namespace

World::World(uint64_t seed, bool is_traced) : seed_(seed), is_traced_(is_traced), random_(seed) {
  network_options_.link_gbps = us(0.05, 2);
  network_options_.latency_us_max = us(2, 30);
  network_options_.landing_us_max = random_.chance(0.7) ? us(0, 40) : us(50, 400);
  network_options_.queue_depth = static_cast<int>(random_.between(1, 16));
  network_options_.full_chance = random_.chance(0.3) ? 0.2 : 0;
  network_options_.removal_fences = random_.chance(0.5);
  network_options_.lands_when_polled = random_.chance(0.5);
  network_options_.stops_with_process = random_.chance(0.5);
  engine_options_.slicing = {random_.between(32, 300), random_.between(1, 8)};
  engine_options_.receives = random_.between(2, 12);
  engine_options_.sends = random_.between(1, 4);
  engine_options_.credits = static_cast<uint32_t>(random_.between(1, 4));
  rails_ = random_.between(1, 3);
  endpoints_ = random_.chance(0.4) ? random_.between(2, 3) : 1;
  engine_options_.heartbeat.interval_ns = 0;
  if (random_.chance(0.15)) {
    const uint64_t interval_ns = random_.between(100'000, 800'000);
    engine_options_.heartbeat = {interval_ns, interval_ns * random_.between(3, 6)};
    engine_options_.handshake_ns = 2'000'000;
  }
  network_options_.closing_fences = random_.chance(0.7);
  network_options_.breaks_connections = seed % 2 == 0;
  engine_options_.farewell_ns = 2'000'000;
  engine_options_.shut_ns = 500'000;
  network_options_.postings_max = random_.chance(0.3) ? random_.between(1, 8) : 256;
  has_faults_ = random_.chance(0.75);
  cancels_ = seed % 4 == 1;
  is_flaky_ = has_faults_ && random_.chance(0.2);
  kills_a_rail_ = has_faults_ && !is_flaky_ && rails_ > 1 && random_.chance(0.2);
  if (is_flaky_) {
    network_options_.latency_us_max = 3;
    network_options_.landing_us_max = 400;
    network_options_.removal_fences = false;
  }
  // A beat that waits behind a write is late, and not lost.
  const uint64_t beat_ns = engine_options_.heartbeat.interval_ns;
  if (beat_ns > 0)
    network_options_.landing_us_max =
        std::min(network_options_.landing_us_max, static_cast<double>(beat_ns) / 2000);
  network_ = std::make_unique<sim::Network>(simulation_, random_.next(), network_options_);
  network_->on_landing = [this](const sim::Landing& landing) {
    for (const auto& process : processes_)
      if (process->memory.contains(landing.target))
        process->memory.check_landing(landing.target, landing.size_bytes);
  };
}

World::~World() {
  for (const auto& process : processes_) process->engine.reset();
}

void World::say(const std::string& what) {
  if (is_traced_)
    std::fprintf(stderr, "%10.3f us  %s\n", simulation::to_us(simulation_.now()), what.c_str());
}

WorldCounts World::run() {
  hosts_.resize(random_.chance(0.2) ? 4 : random_.between(2, 3));
  for (size_t host = 0; host < hosts_.size(); ++host) start_process(host);
  for (size_t i = 0; i < hosts_.size(); ++i)
    for (size_t j = i + 1; j < hosts_.size(); ++j) meet(*hosts_[i], *hosts_[j]);
  if (has_faults_) plan_faults();
  for (uint64_t i = random_.below(3); i > 0; --i)
    simulation_.after_us(us(50, kBeginUntilUs / 2), [this] { found_club(); });
  look_whether_over();
  const simulation::Time end = simulation::from_us(kills_a_rail_ ? kEndUs : kBeatsEndUs);
  while (!is_over_ && simulation_.step(end)) {
  }
  for (const auto& process : processes_)
    if (process->is_alive) check_told(*process);
  check_end();
  for (const auto& job : jobs_) counts_.detours += has_succeeded(*job) && job->makes_a_detour;
  return counts_;
}

// ---- Processes ----

void World::start_process(size_t host) {
  processes_.push_back(std::make_unique<Process>());
  Process& process = *processes_.back();
  hosts_[host] = &process;
  process.host = host;
  process.network_host = network_->add_host([this, &process] { wake(process); });
  std::vector<std::unique_ptr<Domain>> domains;
  for (size_t i = 0; i < rails_; ++i) domains.push_back(open_rail(process, i));
  EngineOptions options = engine_options_;
  options.engine = process.engine_number = random_.next();
  options.random = [this] { return random_.next(); };
  process.engine = Engine::open(std::move(domains), options).value();
  watch_all(process);
  process.sources.resize(kSourceBytes);
  process.memory_region = process.engine->add_region(process.memory.bytes()).value();
  process.source_region = process.engine->add_region(process.sources).value();
  process.jobs_to_begin = static_cast<int>(kills_a_rail_ ? 15 : random_.between(1, 5));
}

/// Processes differ in their numbers of endpoints.
std::unique_ptr<Domain> World::open_rail(Process& process, size_t rail) {
  std::vector<std::unique_ptr<Domain>> endpoints;
  std::vector<const Domain*>& all = process.domains.emplace_back();
  const size_t count = endpoints_ == 1 ? 1 : random_.between(1, endpoints_);
  while (endpoints.size() < count) {
    const uint64_t place = (process.host * rails_ + rail) * kEndpointsMax + endpoints.size();
    endpoints.push_back(network_->open_domain(process.network_host, place));
    all.push_back(endpoints.back().get());
  }
  if (count == 1) return std::move(endpoints.front());
  return join_endpoints(std::move(endpoints), {random_.between(0, 4), random_.between(0, 100)});
}

/// One of them connects, or both at once.
void World::meet(Process& from, Process& to) {
  const auto connect = [this](Process& who, Process& whom) {
    simulation_.after_us(us(0, 20), [this, &who, &whom] {
      if (!who.is_alive || who.is_paused || !whom.is_alive) return;
      const Address address = decode_address(encode(whom.engine->address())).value();
      if (who.engine->find_peer(address.engine)) return;
      if (!who.engine->connect(address, now_ns() + kConnectNs).ok()) throw Bug("cannot connect");
      who.has_called.insert(&whom);
      say("process " + std::to_string(who.host) + " connects to " + std::to_string(whom.host));
      wake(who);
    });
  };
  const uint64_t which = random_.below(3);
  if (which != 0) connect(from, to);
  if (which != 1) connect(to, from);
}

void World::wake(Process& process) {
  if (process.will_step || !process.is_alive || process.is_paused) return;
  process.will_step = true;
  simulation_.after_us(us(0, 1.5), [this, &process] {
    process.will_step = false;
    if (process.is_alive && !process.is_paused) step(process);
  });
}

void World::wake_at(Process& process, uint64_t at_ns) {
  if (at_ns >= process.timer_ns) return;
  process.timer_ns = at_ns;
  simulation_.at(simulation::from_ns(at_ns), [this, &process, at_ns] {
    if (process.timer_ns == at_ns) process.timer_ns = ~uint64_t{0};
    wake(process);
  });
}

void World::step(Process& process) {
  while (process.engine->step(now_ns())) {
  }
  leave_the_gone(process);
  take_events(process);
  take_orders(process);
  scatter(process);
  look_after_tickets(process);
  if (simulation_.now() >= simulation::from_us(kBeginAtLatestUs)) process.jobs_to_begin = 0;
  if (process.jobs_to_begin > 0) {
    if (random_.chance(0.5)) begin_job(process);
    if (simulation_.now() < simulation::from_us(kBeginUntilUs)) wake_at(process, now_ns() + 20'000);
  }
  look_after_own(process);
  if (process.engine->step(now_ns())) wake(process);
  note_losses(process);
  wake_at(process, process.engine->next_deadline_ns());
}

/// Who was stopped may read the greeting of a process only when its end is known already.
void World::leave_the_gone(Process& process) {
  for (const auto& gone : processes_)
    if (gone->is_known_to_be_gone)
      for (const PeerStatistics& peer : process.engine->peers())
        if (peer.engine == gone->engine_number) (void)process.engine->disconnect(peer.peer);
}

// ---- Faults ----

void World::plan_faults() {
  if (kills_a_rail_) {
    simulation_.after_us(us(0, kFaultsEndUs / 10), [this] { kill_a_rail(); });
    return;
  }
  for (uint64_t i = is_flaky_ ? 8 : random_.between(1, 4); i > 0; --i)
    simulation_.after_us(is_flaky_             ? us(20, 300)
                         : random_.chance(0.6) ? us(0, kBusyUntilUs)
                                               : us(0, kFaultsEndUs),
                         [this] { break_something(); });
  if (rails_ > 1 && random_.chance(0.3))
    simulation_.after_us(us(0, kBusyUntilUs), [this] { retire_a_rail(); });
}

/// Nothing is lost by it, and once it is restored everybody uses it again.
void World::retire_a_rail() {
  Process& process = *hosts_[random_.below(hosts_.size())];
  const size_t rail = random_.below(rails_);
  if (!process.is_alive || process.is_paused || !process.engine->retire_rail(rail).ok()) return;
  say("process " + std::to_string(process.host) + " retires rail " + std::to_string(rail));
  ++counts_.retirements;
  wake(process);
  simulation_.after_us(us(0, kBusyUntilUs), [this, &process, rail] {
    if (!process.is_alive) return;
    say("process " + std::to_string(process.host) + " restores rail " + std::to_string(rail));
    if (!process.engine->restore_rail(rail).ok()) throw Bug("a rail cannot be restored");
    wake(process);
  });
}

void World::break_something() {
  const size_t host = random_.below(hosts_.size());
  Process& process = *hosts_[host];
  if (!process.is_alive) return;
  const double lengths_us[] = {3, 100, kFaultsEndUs};
  const double lasts_us = us(0, lengths_us[random_.below(3)]);
  if (is_flaky_) return break_rail(process, sim::Break::kFails, us(0, 3));
  const uint64_t which = random_.below(10);
  if (which < 2) return crash_and_restart(host);
  if (which < 6) {
    if (process.is_paused) return;
    say("process " + std::to_string(process.host) + " pauses for " + std::to_string(lasts_us));
    ++counts_.pauses;
    faults_.add(Fault::kPause, &process, std::nullopt, now_ns(), after_ns(lasts_us));
    process.is_paused = true;
    network_->pause(process.network_host);
    simulation_.after_us(lasts_us, [this, &process] {
      if (!process.is_alive) return;
      say("process " + std::to_string(process.host) + " resumes");
      process.is_paused = false;
      network_->resume(process.network_host);
      wake(process);
    });
    return;
  }
  break_rail(process, static_cast<sim::Break>(random_.below(4)), lasts_us);
}

void World::kill_a_rail() {
  killed_rail_ = random_.below(rails_);
  killed_ = hosts_[random_.below(hosts_.size())];
  say("rail " + std::to_string(killed_rail_) + " of process " + std::to_string(killed_->host) +
      " breaks for good");
  ++counts_.kills;
  for (const Process* process : hosts_)
    for (const RouteStatistics& route : process->engine->routes())
      failures_before_[{process->host, route.peer, route.rail}] = route.failures;
  faults_.add(Fault::kFail, killed_, killed_rail_, now_ns(), Faults::kForGood);
  for (const Domain* endpoint : killed_->domains[killed_rail_])
    network_->cut(*endpoint, sim::Break::kFails);
}

/// Also true if the broken rail is none of theirs.
bool World::knows_of_killed_rail(const Process& writer, const Process& owner) const {
  if (killed_ == nullptr || (&writer != killed_ && &owner != killed_)) return killed_ != nullptr;
  const auto peer = writer.engine->find_peer(owner.engine->address().engine);
  const std::vector<RouteStatistics> routes = writer.engine->routes();
  return std::any_of(routes.begin(), routes.end(), [&](const RouteStatistics& route) {
    return route.peer == *peer && route.rail == killed_rail_ && route.state == RailState::kDown;
  });
}

void World::break_rail(Process& process, sim::Break how, double lasts_us) {
  // As sim::Break.
  constexpr Fault kFaults[] = {Fault::kFail, Fault::kStall, Fault::kSilent, Fault::kSilent};
  const size_t rail = random_.below(rails_);
  std::vector<const Domain*> broken = process.domains[rail];
  if (random_.chance(0.3)) broken = {broken[random_.below(broken.size())]};
  say("rail " + std::to_string(rail) + " of process " + std::to_string(process.host) +
      " breaks, kind " + std::to_string(static_cast<int>(how)) + ", for " +
      std::to_string(lasts_us));
  ++counts_.cuts;
  faults_.add(kFaults[static_cast<size_t>(how)], &process, rail, now_ns(), after_ns(lasts_us));
  for (const Domain* endpoint : broken) network_->cut(*endpoint, how);
  simulation_.after_us(lasts_us, [this, &process, broken] {
    if (!process.is_alive) return;
    for (const Domain* endpoint : broken) network_->mend(*endpoint);
  });
}

/// The others learn of it some time later, and another process begins in its place.
void World::crash_and_restart(size_t host) {
  Process& process = *hosts_[host];
  say("process " + std::to_string(host) + " crashes");
  ++counts_.crashes;
  faults_.add(Fault::kCrash, &process, std::nullopt, now_ns(), Faults::kForGood);
  network_->crash(process.network_host,
                  random_.chance(0.5) ? sim::Break::kFails : sim::Break::kSilent);
  process.is_alive = false;
  process.engine.reset();
  simulation_.after_us(us(10, 2000), [this, &process] {
    process.is_known_to_be_gone = true;
    for (Process* other : hosts_) wake(*other);
  });
  simulation_.after_us(random_.chance(0.5) ? us(0, 10) : us(10, 2000), [this, host] {
    start_process(host);
    for (Process* other : hosts_)
      if (other != hosts_[host]) meet(*hosts_[host], *other);
  });
}

}  // namespace braid::fabric::test
