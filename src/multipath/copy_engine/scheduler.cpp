#include "multipath/copy_engine/scheduler.h"

#include <algorithm>

namespace braid::multipath::copy_engine {
namespace {

// A relayed slice takes a fifth of a millisecond at most, a direct one a millisecond; the driver is
// asked about one that has not landed after this, and then every so often.
constexpr uint64_t kLateNs = 20'000'000;
constexpr uint64_t kLookEveryNs = 5'000'000;

// What the program itself would wait for natively gets more time than a relay.
constexpr uint64_t kDirectPatience = 5;

// A call that the driver refuses on the direct path is made again: it may have been short of
// memory.
constexpr uint32_t kMostAttempts = 3;

// An empty kernel takes microseconds to fail its context.
constexpr int kFailLooks = 1000;
constexpr uint64_t kFailLookNs = 100'000;

// Then the thread looks around again: at 2.5 us a hop, more would keep it from what has landed and
// from transfers that have been submitted meanwhile.
constexpr size_t kPostsPerStep = 4;

// A program that copies to several GPUs says so within microseconds, but not at once. While it
// does, links wait for their own work rather than carry a slice for the first one: a quarter of
// a slice's time, against a slice that would stand before that work.
constexpr uint64_t kBurstNs = 20'000;

constexpr size_t kMostFlights = size_t{2} * kMaxGpus * 8;

}  // namespace

Scheduler::Scheduler(const cuda::Driver& driver, const Policy& policy, uint64_t deadline_ns)
    : driver_(driver),
      deadline_ns_(deadline_ns),
      launcher_(driver),
      dispatch_(policy, kMaxTasks, launcher_.most_pieces()) {
  starting_.reserve(kMaxTasks);
  running_.reserve(kMaxTasks);
  finished_.reserve(kMaxTasks);
  flights_.reserve(kMostFlights);
  order_.reserve(2 * kMaxGpus);
}

void Scheduler::accept(Task& task) {
  task.landed_bytes = 0;
  task.has_failed = false;
  task.carried = {};
  for (int i = 0; i < task.relay_count; ++i) {
    Station* relay = task.relays[i];
    if (relays_[relay->gpu()] == relay) continue;
    relays_[relay->gpu()] = relay;  // new: the GPU's context has been reset meanwhile, or is the
    dispatch_.restore_relay(relay->gpu());  // first
  }
  if (!order_.empty() && order_.front() != task.target->gpu())
    relays_wait_until_ns_ = driver_.clock->now_ns() + kBurstNs;
  prefer(task);
  turn_ = 0;
  starting_.push_back(&task);
}

// Links are served in the order of the latest transfer: its direct path, its relays as it prefers
// them, then all others.
void Scheduler::prefer(const Task& task) {
  std::array<int, kMaxGpus> first{task.target->gpu()};
  int count = 1;
  for (int i = 0; i < task.relay_count && count < kMaxGpus; ++i)
    first[count++] = task.relays[i]->gpu();
  std::erase_if(order_, [&](int gpu) {
    return std::find(first.begin(), first.begin() + count, gpu) != first.begin() + count;
  });
  order_.insert(order_.begin(), first.begin(), first.begin() + count);
}

Scheduler::Load Scheduler::step() {
  now_ns_ = driver_.clock->now_ns();
  poll_flights();
  dispatch_.settle(now_ns_);
  watch_late();
  end_failed();
  poll_starts();
  if (post()) return Load::kPosting;
  if (!running_.empty()) return Load::kMoving;
  return starting_.empty() ? Load::kNone : Load::kStarts;
}

CUresult Scheduler::enter(CUcontext context) {
  if (context == current_) return CUDA_SUCCESS;
  const CUresult result = driver_.cuCtxSetCurrent(context);
  current_ = result == CUDA_SUCCESS ? context : nullptr;
  return result;
}

// ---- Poll ----

void Scheduler::poll_flights() {
  for (size_t i = 0; i < flights_.size();) {
    if (advance(flights_[i]) == Fate::kUnderWay) {
      ++i;
      continue;
    }
    flights_[i] = flights_.back();
    flights_.pop_back();
  }
}

Scheduler::Fate Scheduler::advance(Flight& flight) {
  const Line::Progress progress = flight.line->progress(flight.mark);
  if (progress == Line::Progress::kPending) return Fate::kUnderWay;
  if (progress == Line::Progress::kDead || flight.was_refused)
    return lose(flight, progress == Line::Progress::kDead);
  leave_link(flight);
  if (flight.is_last_hop()) {
    land(flight);
    return Fate::kGone;
  }
  flight.hop = Hop::kFromBuffer;
  issue(flight);
  return Fate::kUnderWay;
}

void Scheduler::leave_link(const Flight& flight) {
  if (uses_link(flight.hop, flight.slice.direction)) dispatch_.link_done(flight.slice, now_ns_);
}

void Scheduler::land(const Flight& flight) {
  if (flight.buffer >= 0) flight.via->give_back_buffer(flight.slice.direction, flight.buffer);
  Task& task = *flight.task;
  Carried& carried = task.carried[flight.slice.via];
  ++carried.slices;
  carried.bytes += flight.slice.size_bytes;
  task.landed_bytes += flight.slice.size_bytes;
  if (task.landed_bytes != task.size_bytes) return;
  task.target->open_gate(task.id, task.generation);
  finish(task);
}

void Scheduler::finish(Task& task) {
  std::erase(running_, &task);
  by_id_[task.id] = nullptr;
  finished_.push_back(&task);
}

// The slice has not landed, and nothing of it is under way any more. A relay's buffer stays taken:
// the relay is not used again.
Scheduler::Fate Scheduler::lose(Flight& flight, bool is_dead) {
  // A slice on its way to the buffer over NVLink has not been counted out of the link either.
  const bool is_past_link =
      flight.slice.direction == Direction::kHostToDevice && flight.hop == Hop::kFromBuffer;
  if (!is_past_link) dispatch_.link_done(flight.slice, now_ns_);
  if (!flight.slice.is_direct()) dispatch_.drop_relay(flight.slice.via);
  const bool can_retry =
      !flight.slice.is_direct() || (!is_dead && flight.slice.attempts + 1 < kMostAttempts);
  if (can_retry)
    dispatch_.take_back(flight.slice);
  else
    flight.task->has_failed = true;
  return Fate::kGone;
}

void Scheduler::watch_late() {
  for (size_t i = 0; i < flights_.size();) {
    Flight& flight = flights_[i];
    if (now_ns_ < flight.look_ns || look_at(flight) == Fate::kUnderWay) {
      ++i;
      continue;
    }
    flights_[i] = flights_.back();
    flights_.pop_back();
  }
}

Scheduler::Fate Scheduler::look_at(Flight& flight) {
  flight.look_ns = now_ns_ + kLookEveryNs;
  enter(flight.via->context());
  const Line::Progress progress = flight.line->inquire(flight.mark);
  if (progress == Line::Progress::kDead) return lose(flight, true);
  if (progress == Line::Progress::kPassed) return Fate::kUnderWay;  // the next poll sees it
  const uint64_t waited_ns = now_ns_ - flight.issued_ns;
  if (waited_ns < deadline_ns_) return Fate::kUnderWay;
  if (!flight.slice.is_direct()) dispatch_.drop_relay(flight.slice.via);
  if (!flight.is_last_hop()) return lose(flight, false);
  if (waited_ns > deadline_ns_ * kDirectPatience) flight.task->has_failed = true;
  return Fate::kUnderWay;
}

// ---- Drain ----

void Scheduler::poll_starts() {
  std::erase_if(starting_, [this](Task* task) {
    if (!task->target->has_started(task->id, task->generation)) return false;
    Job job;
    job.id = task->id;
    job.target = task->target->gpu();
    job.direction = task->direction;
    job.priority = task->priority;
    for (int i = 0; i < task->relay_count; ++i) job.relays |= 1u << task->relays[i]->gpu();
    job.pieces = task->pieces;
    dispatch_.add(job);
    by_id_[task->id] = task;
    running_.push_back(task);
    return true;
  });
  if (starting_.empty() || now_ns_ < next_check_ns_) return;
  next_check_ns_ = now_ns_ + kLateNs;
  // A context that has failed never starts anything.
  std::erase_if(starting_, [this](Task* task) {
    enter(task->target->context());
    if (!task->target->has_failed()) return false;
    task->target->open_gate(task->id, task->generation);
    finished_.push_back(task);
    return true;
  });
}

// ---- Post ----

// One slice for every link that has room, so that all links begin before one has its queue full.
bool Scheduler::post() {
  size_t posted = 0;
  for (size_t looked = 0; looked < order_.size() && posted < kPostsPerStep; ++looked) {
    const int gpu = order_[turn_++ % order_.size()];
    for (const Direction direction : {Direction::kHostToDevice, Direction::kDeviceToHost})
      if (post_to(gpu, direction)) ++posted;
  }
  return posted > 0;
}

bool Scheduler::post_to(int gpu, Direction direction) {
  const auto slice = dispatch_.pull(gpu, direction, now_ns_, can_relay(gpu, direction));
  if (!slice) return false;
  Flight flight;
  flight.slice = *slice;
  flight.task = by_id_[slice->job];
  flight.via = slice->is_direct() ? flight.task->target : relays_[gpu];
  if (!slice->is_direct()) {
    flight.hop = Hop::kToBuffer;
    flight.buffer = flight.via->take_buffer(direction);
  }
  issue(flight);
  flights_.push_back(flight);
  return true;
}

bool Scheduler::can_relay(int gpu, Direction direction) const {
  const Direction other =
      direction == Direction::kHostToDevice ? Direction::kDeviceToHost : Direction::kHostToDevice;
  return relays_[gpu] != nullptr && now_ns_ >= relays_wait_until_ns_ &&
         relays_[gpu]->has_buffer(direction, dispatch_.waiting_bytes(other) > 0);
}

// Whatever the driver refuses, the mark behind it says when the rest has come to an end.
void Scheduler::issue(Flight& flight) {
  Station& via = *flight.via;
  flight.line = uses_link(flight.hop, flight.slice.direction) ? &via.link(flight.slice.direction)
                                                              : &via.hop();
  HopJob job;
  job.hop = flight.hop;
  job.slice = &flight.slice;
  job.pieces = flight.task->pieces;
  job.buffer = flight.buffer >= 0 ? via.buffer(flight.buffer) : 0;
  job.via = via.context();
  job.target = flight.task->target->context();
  job.stream = flight.line->stream();
  flight.was_refused =
      enter(via.context()) != CUDA_SUCCESS || launcher_.launch(job) != CUDA_SUCCESS;
  flight.mark = flight.line->mark();
  flight.issued_ns = driver_.clock->now_ns();
  flight.look_ns = flight.issued_ns + std::min(kLateNs, deadline_ns_);
}

// ---- The end of what cannot be carried on ----

void Scheduler::end_failed() {
  for (size_t i = 0; i < running_.size();) {
    Task& task = *running_[i];
    if (!task.has_failed) {
      ++i;
      continue;
    }
    forget_flights_of(task);
    enter(task.target->context());
    task.target->fail_context();
    for (int look = 0; look < kFailLooks && !task.target->has_failed(); ++look)
      driver_.clock->sleep_ns(kFailLookNs);
    task.target->open_gate(task.id, task.generation);
    finish(task);
  }
}

void Scheduler::forget_flights_of(const Task& task) {
  dispatch_.remove(task.id);
  std::erase_if(flights_, [&](Flight& flight) {
    if (flight.task != &task) return false;
    lose(flight, true);
    return true;
  });
  dispatch_.remove(task.id);  // those that have just been taken back
}

bool Scheduler::needs(const Station& station) const {
  const auto is_target = [&](const Task* task) { return task->target == &station; };
  return std::any_of(starting_.begin(), starting_.end(), is_target) ||
         std::any_of(running_.begin(), running_.end(), is_target) ||
         std::any_of(flights_.begin(), flights_.end(),
                     [&](const Flight& flight) { return flight.via == &station; });
}

bool Scheduler::release(Station& station, bool is_forced) {
  const int gpu = station.gpu();
  if (relays_[gpu] == &station) dispatch_.drop_relay(gpu);
  if (needs(station)) {
    if (!is_forced) return false;
    give_up(station);
  }
  if (relays_[gpu] == &station) relays_[gpu] = nullptr;
  current_ = nullptr;  // a later context may have this one's handle
  return true;
}

// The context goes away with transfers in flight: those to it end here, those through it go direct.
void Scheduler::give_up(Station& station) {
  std::erase_if(flights_, [&](Flight& flight) {
    if (flight.via != &station || flight.task->target == &station) return false;
    lose(flight, true);
    return true;
  });
  const auto end = [&](Task* task) {
    if (task->target != &station) return false;
    forget_flights_of(*task);
    by_id_[task->id] = nullptr;
    task->target->open_gate(task->id, task->generation);
    finished_.push_back(task);
    return true;
  };
  std::erase_if(starting_, end);
  std::erase_if(running_, end);
}

}  // namespace braid::multipath::copy_engine
