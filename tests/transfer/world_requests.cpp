// Requests, what drives the scheduler, and what must be true of them.
#include <algorithm>
#include <cstdio>
#include <stdexcept>

#include "transfer/world_parts.h"

namespace braid::transfer::test {
namespace {

uint8_t pattern(uint64_t request, uint64_t offset) {
  return static_cast<uint8_t>((request * 0x9e3779b97f4a7c15 + offset * 0xff51afd7ed558ccd) >> 53);
}

}  // namespace

World::World(uint64_t seed, bool is_traced) : random_(seed), is_traced_(is_traced) { build(); }
World::~World() = default;

void World::trace(const std::string& what) const {
  if (is_traced_) std::printf("%10.3f us  %s\n", static_cast<double>(now_ns_) / 1e3, what.c_str());
}

void World::bug(const std::string& what) const {
  throw std::runtime_error(what + " at " + std::to_string(now_ns_ / kUs) + " us");
}

void World::at(uint64_t when_ns, std::function<void()> action) {
  events_.push({std::max(when_ns, now_ns_), order_++, std::move(action)});
}

void World::build() {
  options_.slices = {random_.between(256, 2048), random_.between(4, 64)};
  options_.window_us = static_cast<double>(random_.between(5, 500));
  options_.retry.unreachable_ns = random_.between(20, 400) * kMs;
  options_.retry.failures_max = static_cast<uint32_t>(random_.between(3, 12));
  options_.seed = random_.next();
  scheduler_ = std::make_unique<Scheduler>(options_);
  const size_t peers = random_.between(1, 3), ours = random_.between(1, 4);
  for (size_t i = 0; i < ours; ++i) scheduler_->add_rail({0.2});
  rails_ = ours;
  for (uint64_t peer = 1; peer <= peers; ++peer) {
    const size_t theirs = random_.between(1, 3), first = rails_;
    for (size_t i = 0; i < theirs; ++i) scheduler_->add_rail({0.2});
    rails_ += theirs;
    std::vector<Way> ways;
    for (size_t i = 0; i < ours; ++i) {
      for (size_t j = 0; j < theirs; ++j) {
        if (i % theirs != j && random_.chance(0.6)) continue;
        Path path;
        path.peer = peer;
        path.local = i;
        path.remote = first + j;
        path.gbps = 0.02 + 0.4 * random_.unit();
        path.latency_ns = random_.between(1 * kUs, 40 * kUs);
        const uint32_t id = scheduler_->add_path(
            {peer, static_cast<uint32_t>(path.local), static_cast<uint32_t>(path.remote), 0.2, 5});
        paths_.push_back(std::move(path));
        ways.push_back({id, static_cast<uint8_t>(random_.below(3))});
      }
    }
    for (int set = 0; set < 2; ++set) {
      std::vector<Way> some;
      for (const Way& way : ways)
        if (set == 0 || random_.chance(0.7)) some.push_back(way);
      if (some.empty()) continue;
      std::vector<uint32_t> of_way;
      for (const Way& way : some) of_way.push_back(way.path);
      ways_.push_back(scheduler_->add_ways(some));
      paths_of_way_.push_back(std::move(of_way));
      peer_of_way_.push_back(peer);
    }
  }
  regions_.resize(random_.between(1, 8));
  for (Region& region : regions_) {
    region.source.resize(kRegionBytes);
    region.target.resize(kRegionBytes);
  }
  to_submit_ = random_.between(1, 24);
  faults_end_ns_ = random_.between(1, 60) * kMs;
  if (random_.chance(0.2)) failing_chance_ = 0.01 * random_.unit();
  if (random_.chance(0.1)) at(random_.below(faults_end_ns_), [this] { lose_peer(); });
  if (random_.chance(0.1)) at(random_.below(faults_end_ns_), [this] { retire_some_path(); });
  if (peers > 1 && random_.chance(0.2)) at(random_.below(faults_end_ns_), [this] { leave_peer(); });
  if (random_.chance(0.9))
    for (uint64_t i = random_.below(6); i > 0; --i)
      at(random_.below(faults_end_ns_), [this] { break_something(); });
}

// ---- Requests ----

void World::submit() {
  const auto free = std::find_if(regions_.begin(), regions_.end(),
                                 [](const Region& region) { return region.request == 0; });
  if (to_submit_ == 0 || free == regions_.end()) return;
  --to_submit_;
  Region& region = *free;
  region.request = next_request_++;
  region.size_bytes = random_.chance(0.03) ? 0 : random_.between(1, kRegionBytes);
  region.deadline_ns = random_.chance(0.1) ? now_ns_ + random_.below(20 * kMs) : kNever;
  do {
    region.way = random_.below(ways_.size());
  } while (peer_of_way_[region.way] == leaving_peer_);
  region.is_cancelled = region.has_lost_peer = false;
  region.told.assign(region.size_bytes, false);
  for (uint64_t i = 0; i < region.size_bytes; ++i) {
    region.source[i] = pattern(region.request, i);
    region.target[i] = static_cast<uint8_t>(~region.source[i]);
  }
  RequestSpec spec;
  spec.id = region.request;
  spec.peer = peer_of_way_[region.way];
  spec.size_bytes = region.size_bytes;
  spec.urgency = random_.chance(0.2) ? Urgency::kUrgent : Urgency::kBulk;
  spec.ways = ways_[region.way];
  spec.source = static_cast<uint32_t>(random_.below(3));
  spec.deadline_ns = region.deadline_ns;
  if (random_.chance(0.2)) spec.alignment_bytes = uint64_t{1} << random_.below(10);
  ++counts_.requests;
  region_of_[spec.id] = static_cast<size_t>(free - regions_.begin());
  trace("request " + std::to_string(spec.id) + " of " + std::to_string(spec.size_bytes));
  const uint64_t id = spec.id;
  scheduler_->add(std::move(spec), now_ns_);
  if (random_.chance(0.05)) {
    at(now_ns_ + random_.below(5 * kMs), [this, id] {
      const auto of = region_of_.find(id);
      if (of == region_of_.end()) return;
      regions_[of->second].is_cancelled = true;
      trace("cancel " + std::to_string(id));
      scheduler_->cancel(id, now_ns_);
    });
  }
}

void World::request_ended(const RequestEnded& ended) {
  const auto at = region_of_.find(ended.request);
  if (at == region_of_.end()) bug("request " + std::to_string(ended.request) + " ended twice");
  Region& region = regions_[at->second];
  trace("ended " + std::to_string(ended.request) + " outcome " +
        std::to_string(static_cast<int>(ended.outcome)));
  counts_.reissued += ended.reissued;
  if (ended.delivered_bytes !=
      static_cast<uint64_t>(std::count(region.told.begin(), region.told.end(), true)))
    bug("request " + std::to_string(ended.request) + " says that " +
        std::to_string(ended.delivered_bytes) + " bytes were delivered, and that is wrong");
  if (ended.outcome == Outcome::kDone) {
    ++counts_.done;
    if (ended.delivered_bytes != region.size_bytes) bug("done, and not all was delivered");
    for (uint64_t i = 0; i < region.size_bytes; ++i)
      if (region.target[i] != region.source[i])
        bug("request " + std::to_string(ended.request) + " is done, and byte " + std::to_string(i) +
            " is missing");
  } else if (!is_excused(region, ended)) {
    bug("request " + std::to_string(ended.request) + " ended with outcome " +
        std::to_string(static_cast<int>(ended.outcome)) + " for no reason");
  }
  region.request = 0;
  region_of_.erase(at);
  forget_peer();
}

bool World::is_excused(const Region& region, const RequestEnded& ended) const {
  const auto was_faulty = [&](uint32_t path) {
    return paths_[path].is_retired ||
           (paths_[path].was_ever_faulty &&
            paths_[path].faulty_ns + options_.retry.unreachable_ns + 220 * kMs >= now_ns_);
  };
  const std::vector<uint32_t>& paths = paths_of_way_[region.way];
  switch (ended.outcome) {
    case Outcome::kCancelled: return region.is_cancelled;
    case Outcome::kPeerLost: return region.has_lost_peer;
    case Outcome::kDeadline: return region.deadline_ns <= now_ns_;
    case Outcome::kUnreachable: return std::all_of(paths.begin(), paths.end(), was_faulty);
    case Outcome::kFailed:
      return ended.reissued + 1 >= options_.retry.failures_max &&
             std::any_of(paths.begin(), paths.end(), was_faulty);
    default: return false;
  }
}

// ---- The run ----

void World::drive() {
  while (const auto posting = scheduler_->next(now_ns_)) {
    ++counts_.postings;
    const auto flight = std::make_shared<Flight>();
    const auto at = region_of_.find(posting->request);
    if (at == region_of_.end()) bug("a posting of a request that has ended");
    *flight = {
        posting->id,   posting->request,           at->second, posting->offset, posting->size_bytes,
        posting->path, paths_[posting->path].epoch};
    const std::vector<uint32_t>& allowed = paths_of_way_[regions_[at->second].way];
    if (std::find(allowed.begin(), allowed.end(), posting->path) == allowed.end())
      bug("a posting on a path that is none of its ways");
    if (regions_[at->second].is_cancelled) bug("a posting of a request that was cancelled");
    if (regions_[at->second].deadline_ns <= now_ns_) bug("a posting after the deadline");
    if (paths_[posting->path].is_retired) bug("a posting on a path that was retired");
    if (paths_[posting->path].is_forgotten) bug("a posting on a path that was forgotten");
    if (paths_[posting->path].is_fencing) bug("a posting on a path that waits for its fence");
    depart(flight);
  }
  while (const auto probe = scheduler_->next_probe(now_ns_)) {
    ++counts_.probes;
    if (paths_[probe->path].is_forgotten) bug("a probe of a path that was forgotten");
    const auto flight = std::make_shared<Flight>();
    *flight = {probe->id, 0, 0, 0, 64, probe->path, paths_[probe->path].epoch};
    depart(flight);
  }
  while (const auto event = scheduler_->next_event()) {
    if (const auto* ended = std::get_if<RequestEnded>(&*event)) request_ended(*ended);
    if (const auto* wanted = std::get_if<FenceWanted>(&*event)) {
      const uint32_t path = wanted->path;
      trace("path " + std::to_string(path) + " wants a fence");
      paths_[path].is_fencing = true;
      at(now_ns_ + random_.below(2 * kMs), [this, path] { fence(path); });
    }
    if (const auto* changed = std::get_if<PathChanged>(&*event))
      trace("path " + std::to_string(changed->path) + " is " + state_name(changed->to));
  }
  const uint64_t look_ns = std::max(scheduler_->next_deadline_ns(), now_ns_ + 1);
  if (look_ns == kNever || (look_ns_ > now_ns_ && look_ns_ <= look_ns)) return;
  look_ns_ = look_ns;
  at(look_ns, [] {});
}

WorldCounts World::run() {
  for (uint64_t i = to_submit_; i > 0; --i) at(random_.below(faults_end_ns_), [this] { submit(); });
  constexpr uint64_t kEnoughNs = 30'000 * kMs;
  drive();
  while (!events_.empty() && now_ns_ < kEnoughNs) {
    const Event event = events_.top();
    events_.pop();
    now_ns_ = event.when_ns;
    event.action();
    drive();
    while (to_submit_ > 0 && region_of_.empty()) {
      submit();
      drive();
    }
  }
  check_rest();
  return counts_;
}

void World::check_rest() {
  if (!region_of_.empty())
    bug("request " + std::to_string(region_of_.begin()->first) + " has not ended");
  if (scheduler_->request_count() > 0) bug("a request is left");
  if (scheduler_->open_postings() > 0)
    bug(std::to_string(scheduler_->open_postings()) + " postings are left open");
  for (uint32_t i = 0; i < paths_.size(); ++i) {
    if (paths_[i].is_forgotten) continue;
    const PathView view = scheduler_->view(i, now_ns_);
    if (paths_[i].is_retired) continue;
    if (view.in_flight_bytes > 0) bug("bytes in flight are left on path " + std::to_string(i));
    if (view.state != PathState::kUp && view.state != PathState::kRejoining)
      bug("path " + std::to_string(i) + " was mended, and is " + state_name(view.state));
    if (!view.is_fencing) continue;
    bug("path " + std::to_string(i) + " waits for its fence");
  }
}

}  // namespace braid::transfer::test
