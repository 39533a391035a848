#include "multipath/target.h"

#include <algorithm>
#include <chrono>
#include <thread>

#include "cuda/scoped_context.h"
#include "multipath/kernel_mover.h"
#include "multipath/selector.h"

namespace braid::multipath {
namespace {

// An empty launch takes microseconds. A GPU that has not run one by then is held by the program
// itself, and braid stays out of its way.
constexpr std::chrono::seconds kWarmUpLimit{10};

}  // namespace

Target::Target(const cuda::Driver& driver, const Options& options, const CostModel& costs,
               Endpoint& endpoint, std::vector<Endpoint*> relays)
    : driver_(driver),
      options_(options),
      costs_(costs),
      endpoint_(endpoint),
      relays_(std::move(relays)) {
  via_[0] = endpoint_.gpu();
  for (size_t i = 0; i < relays_.size(); ++i) via_[i + 1] = relays_[i]->gpu();
}

Result<std::unique_ptr<Target>> Target::open(const cuda::Driver& driver, const Options& options,
                                             const CostModel& costs, Endpoint& endpoint,
                                             std::vector<Endpoint*> relays) {
  relays.resize(std::min<size_t>(relays.size(), cuda::kMaxPaths - 1));
  std::unique_ptr<Target> target(new Target(driver, options, costs, endpoint, relays));
  cuda::ScopedContext scope(driver, endpoint.context());
  auto tickets = TicketPool::open(driver);
  if (!tickets.ok()) return tickets.status();
  target->tickets_ = std::move(tickets).value();
  auto lanes = LaneSet::open(driver, endpoint, relays);
  if (!lanes.ok()) return lanes.status();
  target->lanes_ = std::move(lanes).value();
  const Status status = target->warm_up();
  if (status.ok()) return target;
  target->abandon();  // its kernels may still be waiting for a turn, and will touch their ticket
  return status;
}

bool Target::has_relay() {
  std::lock_guard lock(mutex_);
  return std::any_of(relays_.begin(), relays_.end(), [](const Endpoint* relay) { return relay; });
}

Status Target::warm_up() {
  Status status = run_empty(true);
  if (status.ok()) status = run_empty(false);
  return status;
}

// A transfer of no bytes over every path, with the bulk kernel or the plain one.
Status Target::run_empty(bool aligned_alike) {
  Lane& lane = lanes_->lanes().front();
  Ticket& ticket = *tickets_->find_free();
  std::vector<Endpoint*> paths = {&endpoint_};
  std::vector<int> lane_paths = {0};
  for (Endpoint* relay : relays_) {
    paths.push_back(relay);
    lane_paths.push_back(static_cast<int>(lane_paths.size()));
  }
  MoverJob job;
  job.transfer.stream = lane.streams[0];
  job.transfer.host = reinterpret_cast<void*>(aligned_alike ? uintptr_t{0} : uintptr_t{8});
  job.paths = paths;
  job.lane_paths = lane_paths;
  job.slice_bytes = kDefaultSliceBytes;
  const std::string what = "running braid's kernels for GPU " + std::to_string(endpoint_.gpu());
  if (enqueue(driver_, job, lane, ticket).verdict != Verdict::kAccelerated || ticket.retired)
    return Status::error(what + ": the driver refused a launch");

  cuda::ScopedContext scope(driver_);
  const auto deadline = std::chrono::steady_clock::now() + kWarmUpLimit;
  for (size_t i = 0; i < paths.size(); ++i) {
    scope.enter(paths[i]->context());
    CUresult result = CUDA_ERROR_NOT_READY;
    while ((result = driver_.cuStreamQuery(lane.streams[i])) == CUDA_ERROR_NOT_READY) {
      if (std::chrono::steady_clock::now() > deadline)
        return Status::error(what + ": GPU " + std::to_string(paths[i]->gpu()) +
                             " is held by a kernel");
      std::this_thread::sleep_for(std::chrono::microseconds(20));
    }
    const Status status = driver_.check(result, what);
    if (!status.ok()) return status;
  }
  return ticket.is_free() ? Status() : Status::error(what + ": its report did not arrive");
}

Verdict Target::submit(const Transfer& transfer, int path_limit) {
  const uint64_t now_ns = driver_.clock->now_ns();  // may wait for another thread: not locked
  std::lock_guard lock(mutex_);
  return submit_locked(transfer, path_limit, now_ns);
}

// The first copy after a pause may stay native, since the relays have to wake up. Its followers
// count as warm for having been preceded, or a program of such copies would never have warm relays.
bool Target::is_cold(uint64_t now_ns) {
  const bool is_cold = last_asked_ns_ == 0 || now_ns > last_asked_ns_ + kColdAfterNs;
  last_asked_ns_ = now_ns;
  return is_cold;
}

Verdict Target::submit_locked(const Transfer& transfer, int path_limit, uint64_t now_ns) {
  std::array<Endpoint*, cuda::kMaxPaths> paths{&endpoint_};
  std::array<int, cuda::kMaxPaths> lane_paths{};
  size_t count = 1;
  for (size_t i = 0; i < relays_.size(); ++i) {
    if (relays_[i] == nullptr) continue;
    paths[count] = relays_[i];
    lane_paths[count++] = static_cast<int>(i) + 1;
  }
  const int available = static_cast<int>(count);
  const Plan chosen =
      plan(costs_, {.direction = transfer.direction,
                    .size_bytes = transfer.size_bytes,
                    .paths = path_limit > 0 ? std::min(available, path_limit) : available,
                    .is_cold = is_cold(now_ns),
                    .asked_threshold_bytes = options_.threshold_bytes});
  if (chosen.way == Way::kNative) return Verdict::kBelowThreshold;
  count = static_cast<size_t>(chosen.paths);

  Lane* lane = lanes_->find(stream_key(transfer.stream));
  Ticket* ticket = lane != nullptr ? tickets_->find_free() : nullptr;
  if (ticket == nullptr) return Verdict::kSaturated;
  read_counts(*ticket);

  MoverJob job;
  job.transfer = transfer;
  job.paths = std::span(paths.data(), count);
  job.lane_paths = std::span(lane_paths.data(), count);
  job.slice_bytes = slice_bytes_for(transfer.size_bytes, options_.slice_bytes);
  job.yields = options_.yields;
  const MoverResult outcome = enqueue(driver_, job, *lane, *ticket);
  if (outcome.verdict != Verdict::kAccelerated) return outcome.verdict;
  // A relay that refuses is not asked again: each refusal costs a ticket.
  if (outcome.refused_path > 0) relays_[lane_paths[outcome.refused_path] - 1] = nullptr;

  ticket->unread = true;
  ticket->direction = transfer.direction;
  ticket->slice_bytes = job.slice_bytes;
  ticket->path_count = static_cast<int>(count);
  std::copy_n(lane_paths.begin(), count, ticket->lane_paths.begin());
  lane->last = ticket->retired ? nullptr : ticket;
  lane->last_generation = ticket->generation;
  return outcome.verdict;
}

void Target::read_counts(Ticket& ticket) {
  if (!ticket.unread || !ticket.is_free()) return;
  ticket.unread = false;
  auto& counts = counts_[static_cast<size_t>(ticket.direction)];
  for (int path = 0; path < ticket.path_count; ++path) {
    Count& count = counts[ticket.lane_paths[path]];
    count.slices += ticket.report->slices[path];
    count.bytes += uint64_t{ticket.report->slices[path]} * ticket.slice_bytes -
                   ticket.report->short_bytes[path];
  }
}

bool Target::harvest() {
  const std::unique_lock lock(mutex_, std::try_to_lock);
  if (!lock) return false;
  for (Ticket& ticket : tickets_->tickets()) read_counts(ticket);
  return tickets_->all_free();
}

void Target::append_counts(std::vector<PathCount>& counts) {
  const std::unique_lock lock(mutex_, std::try_to_lock);
  if (!lock) return;
  for (const Direction direction : {Direction::kHostToDevice, Direction::kDeviceToHost})
    for (size_t path = 0; path <= relays_.size(); ++path) {
      const Count& count = counts_[static_cast<size_t>(direction)][path];
      if (count.slices != 0)
        counts.push_back({endpoint_.gpu(), via_[path], direction, count.slices, count.bytes});
    }
}

bool Target::uses(const Endpoint& endpoint) {
  std::lock_guard lock(mutex_);
  return &endpoint_ == &endpoint ||
         std::find(relays_.begin(), relays_.end(), &endpoint) != relays_.end();
}

void Target::retire_in_flight() {
  std::lock_guard lock(mutex_);
  for (Ticket& ticket : tickets_->tickets())
    if (!ticket.is_free()) ticket.retired = true;
  for (Lane& lane : lanes_->lanes())
    if (lane.last != nullptr && lane.last->retired) lane.last = nullptr;
}

void Target::drop_relay(const Endpoint& relay) {
  std::lock_guard lock(mutex_);
  std::replace(relays_.begin(), relays_.end(), const_cast<Endpoint*>(&relay),
               static_cast<Endpoint*>(nullptr));
}

void Target::abandon() {
  std::lock_guard lock(mutex_);
  tickets_->abandon();
}

}  // namespace braid::multipath
