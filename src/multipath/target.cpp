#include "multipath/target.h"

#include <algorithm>

#include "cuda/bounded_wait.h"
#include "cuda/relaxed_capture.h"
#include "cuda/scoped_context.h"
#include "multipath/slice_lists.h"
#include "multipath/slice_size.h"

namespace braid::multipath {
namespace {

// Batches too large for the ring take larger slices, up to here: beyond, links would end apart.
constexpr uint32_t kLargestListSliceBytes = 1 << 20;

// The largest transfers take tens of milliseconds. One that has been submitted for this long, and
// whose kernels have not left this long after its turn was seen to have come, waits for SMs.
constexpr uint64_t kOverdueNs = 100'000'000;

}  // namespace

Target::Target(const cuda::Driver& driver, const Options& options, const Planner& planner,
               Endpoint& endpoint, std::vector<Endpoint*> relays)
    : driver_(driver),
      options_(options),
      planner_(planner),
      endpoint_(endpoint),
      relays_(std::move(relays)),
      slot_(static_cast<uint32_t>(endpoint.gpu()) % cuda::kMaxPaths) {
  via_[0] = endpoint_.gpu();
  for (size_t i = 0; i < relays_.size(); ++i) via_[i + 1] = relays_[i]->gpu();
}

Result<std::unique_ptr<Target>> Target::open(const cuda::Driver& driver, const Options& options,
                                             const Planner& planner, Endpoint& endpoint,
                                             std::vector<Endpoint*> relays,
                                             CopyEngineMover* copy_engine) {
  relays.resize(std::min<size_t>(relays.size(), cuda::kMaxPaths - 1));
  std::unique_ptr<Target> target(new Target(driver, options, planner, endpoint, relays));
  target->copy_engine_ = copy_engine;
  cuda::ScopedContext scope(driver, endpoint.context());
  if (const Status status = driver.check(scope.status(), "allocating tickets"); !status.ok())
    return status;
  auto tickets = TicketPool::open(driver);
  if (!tickets.ok()) return tickets.status();
  target->tickets_ = std::move(tickets).value();
  auto lists = ListRing::open(driver);
  if (!lists.ok()) return lists.status();
  target->lists_ = std::move(lists).value();
  auto lanes = LaneSet::open(driver, endpoint, relays);
  if (!lanes.ok()) return lanes.status();
  target->lanes_ = std::move(lanes).value();
  target->rescue_ = std::make_unique<Rescue>(driver, endpoint, *target->tickets_, *target->lists_,
                                             *target->lanes_);
  const auto deadline = std::chrono::steady_clock::now() + cuda::kHeldAfter;
  const Status status = target->warm_up(deadline);
  if (status.ok()) return target;
  // A kernel that is still waiting for its turn will touch its ticket.
  if (!target->wait_for_warm_up(deadline).ok()) target->abandon();
  return status;
}

bool Target::has_relay() {
  std::lock_guard lock(mutex_);
  return std::any_of(relays_.begin(), relays_.end(),
                     [](const Endpoint* relay) { return relay != nullptr; });
}

Status Target::warm_up(Deadline deadline) {
  Status status = run_empty(true, deadline);
  if (status.ok()) status = run_empty(false, deadline);
  return status;
}

// A transfer of no bytes over every path, with the bulk kernel or the plain one.
Status Target::run_empty(bool aligned_alike, Deadline deadline) {
  Lane& lane = lanes_->lanes().front();
  Ticket& ticket = *tickets_->find_free();
  std::vector<Endpoint*> paths = {&endpoint_};
  std::vector<int> lane_paths = {0};
  for (Endpoint* relay : relays_) {
    paths.push_back(relay);
    lane_paths.push_back(static_cast<int>(lane_paths.size()));
  }
  MoverJob job;
  job.stream = lane.streams[0];
  job.bytes.slice_bytes = kDefaultSliceBytes;
  job.bytes.aligned_alike = aligned_alike;
  job.paths = paths;
  job.lane_paths = lane_paths;
  const std::string what = "running braid's kernels for GPU " + std::to_string(endpoint_.gpu());
  const MoverResult moved = enqueue(driver_, job, lane, ticket);
  if (moved.verdict != Verdict::kAccelerated || moved.refused.any())
    return Status::error(what + ": the driver refused a launch");
  const Status status = wait_for_warm_up(deadline);
  if (!status.ok()) return Status::error(what + ": " + status.message());
  return ticket.is_free() ? Status() : Status::error(what + ": its report did not arrive");
}

Status Target::wait_for_warm_up(Deadline deadline) const {
  const Lane& lane = lanes_->lanes().front();
  cuda::ScopedContext scope(driver_);
  for (size_t path = 0; path < lane.streams.size(); ++path) {
    const Endpoint& endpoint = path == 0 ? endpoint_ : *relays_[path - 1];
    CUresult result = scope.enter(endpoint.context());
    if (result == CUDA_SUCCESS)
      result = cuda::wait_until_idle(driver_, lane.streams[path], deadline);
    if (result == CUDA_ERROR_NOT_READY)
      return Status::error("GPU " + std::to_string(endpoint.gpu()) + " is held by a kernel");
    const Status status =
        driver_.check(result, "waiting for GPU " + std::to_string(endpoint.gpu()));
    if (!status.ok()) return status;
  }
  return {};
}

Outcome Target::submit(const Batch& batch, uint64_t size_bytes, int path_limit,
                       const Classification& memory) {
  const uint64_t now_ns = driver_.clock->now_ns();  // may wait for another thread: not locked
  PathChoice choice;
  std::unique_lock lock(mutex_);
  size_t count = list_paths(memory.allowed, choice);
  if (count == 1) return Verdict::kNoRelay;
  if (path_limit > 0) count = std::min(count, static_cast<size_t>(path_limit));
  const Plan chosen =
      plan_for(batch, size_bytes, static_cast<int>(count), memory.is_pooled, now_ns);
  count = static_cast<size_t>(chosen.paths);
  Outcome outcome = chosen.verdict;
  if (chosen.mover == Mover::kKernel) {
    outcome = launch(batch, size_bytes, choice, count, now_ns);
  } else if (chosen.mover == Mover::kCopyEngine) {
    lock.unlock();
    outcome = copy_engine_->submit(batch, endpoint_, std::span(choice.paths).subspan(1, count - 1));
  }
  outcome.forecast = chosen.forecast;
  return outcome;
}

// Relays are warm while they work, and for a while after. The first copy after a pause may stay
// native, since they have to wake up; its followers count as warm for having been preceded, or a
// program of such copies would never have warm relays.
void Target::keep_warm(const Plan& chosen, uint64_t now_ns) {
  const double busy_us = chosen.mover == Mover::kNative ? 0 : chosen.expected_us();
  const uint64_t until_ns = now_ns + static_cast<uint64_t>(busy_us * 1e3) + kColdAfterNs;
  warm_until_ns_ = std::max(warm_until_ns_, until_ns);
}

Manners Target::manners_of(const Batch& batch) const {
  Manners manners;
  manners.priority = batch.priority;
  manners.direct_first = options_.direct_first;
  manners.yields = options_.yields;
  // Urgent transfers go first anyway.
  if (batch.priority == Priority::kBulk) manners.relay_slot = slot_;
  manners.is_favoured = options_.favoured_gpu == endpoint_.gpu();
  return manners;
}

// Every path there is, the direct one first.
size_t Target::list_paths(GpuSet allowed, PathChoice& choice) const {
  choice.paths[0] = &endpoint_;
  choice.lane_paths[0] = 0;
  size_t count = 1;
  for (size_t i = 0; i < relays_.size(); ++i) {
    if (relays_[i] == nullptr || (allowed & gpu_bit(relays_[i]->gpu())) == 0) continue;
    choice.paths[count] = relays_[i];
    choice.lane_paths[count++] = static_cast<int>(i) + 1;
  }
  return count;
}

Plan Target::plan_for(const Batch& batch, uint64_t size_bytes, int paths, bool is_pooled,
                      uint64_t now_ns) {
  const Plan chosen = planner_.plan(batch, size_bytes,
                                    {.paths = paths,
                                     .is_cold = now_ns > warm_until_ns_,
                                     .kernels_blocked = are_kernels_blocked(now_ns),
                                     .is_pooled = is_pooled});
  keep_warm(chosen, now_ns);
  return chosen;
}

// A transfer's turn has come, and long after it its kernels have not left: the program's own hold
// the SMs. Asked only where copy engines could carry the next one instead, and of the driver only
// about transfers that are overdue: hardly ever, on a copy's path.
bool Target::are_kernels_blocked(uint64_t now_ns) {
  if (copy_engine_ == nullptr) return false;
  bool is_any_blocked = false;
  for (Lane& lane : lanes_->lanes()) {
    if (now_ns <= lane.submitted_ns + kOverdueNs || lane.is_idle()) continue;
    if (lane.begun_ns == 0) {
      const cuda::RelaxedCapture relaxed(driver_);  // another thread may be capturing
      if (driver_.cuEventQuery(lane.start) == CUDA_SUCCESS) lane.begun_ns = now_ns;
    }
    is_any_blocked = is_any_blocked || (lane.begun_ns != 0 && now_ns > lane.begun_ns + kOverdueNs);
  }
  return is_any_blocked;
}

// False when there is no room for the batch's lists. They belong to the ticket once committed.
bool Target::slice(const Batch& batch, SlicedBytes& bytes) {
  uint64_t size_bytes = bytes.size_bytes;
  bytes.slice_bytes = slice_bytes_for(size_bytes, options_.slice_bytes);
  if (batch.segments.size() == 1) {
    const Segment& whole = batch.segments[0];
    const auto host = reinterpret_cast<uint64_t>(whole.host);
    const bool to_device = batch.direction == Direction::kHostToDevice;
    bytes.source = to_device ? host : whole.device;
    bytes.destination = to_device ? whole.device : host;
    bytes.aligned_alike = ((bytes.source ^ bytes.destination) & 15) == 0;
    bytes.slice_count = static_cast<uint32_t>(
        cuda::slice_count_of(bytes.destination, size_bytes, bytes.slice_bytes));
    return true;
  }
  const auto bound = [&] {
    return slice_list_bound(batch.segments.size(), size_bytes, bytes.slice_bytes);
  };
  while (bound() > ListRing::capacity() && bytes.slice_bytes < kLargestListSliceBytes)
    bytes.slice_bytes *= 2;
  const std::span<cuda::SliceList> room = lists_->reserve(bound());
  if (room.empty()) return false;
  const SliceLists filled = fill_slice_lists(batch, bytes.slice_bytes, room);
  bytes.lists = reinterpret_cast<uint64_t>(room.data());
  bytes.slice_count = filled.count;
  bytes.aligned_alike = filled.aligned_alike;
  return true;
}

Outcome Target::launch(const Batch& batch, uint64_t size_bytes, const PathChoice& choice,
                       size_t count, uint64_t now_ns) {
  Lane* lane = lanes_->find(stream_key(batch.stream));
  Ticket* ticket = lane != nullptr ? tickets_->find_free() : nullptr;
  MoverJob job;
  job.bytes.size_bytes = size_bytes;
  if (ticket == nullptr || !slice(batch, job.bytes)) return Verdict::kSaturated;
  read_counts(*ticket);
  job.direction = batch.direction;
  job.stream = batch.stream;
  job.manners = manners_of(batch);
  job.paths = std::span(choice.paths.data(), count);
  job.lane_paths = std::span(choice.lane_paths.data(), count);
  const MoverResult moved = enqueue(driver_, job, *lane, *ticket);
  if (moved.verdict != Verdict::kAccelerated) return moved.verdict;
  // Relays that refuse are not asked again.
  for (size_t path = 1; path < count; ++path)
    if (moved.refused[path]) relays_[static_cast<size_t>(choice.lane_paths[path]) - 1] = nullptr;
  if (job.bytes.lists != 0) lists_->commit(job.bytes.slice_count, *ticket);

  ticket->begin_use(batch.direction, job.bytes, system_clock().now_ns());
  ticket->path_count = static_cast<int>(count);
  std::copy_n(choice.lane_paths.begin(), count, ticket->lane_paths.begin());
  ticket->is_orphan = ticket->retired;  // a relay has refused, and so has the target in its place
  lane->last = ticket;
  lane->last_generation = ticket->generation;
  lane->submitted_ns = now_ns;
  lane->begun_ns = 0;
  Outcome outcome = moved.verdict;
  outcome.mover = Mover::kKernel;
  outcome.slice_bytes = job.bytes.slice_bytes;
  for (size_t path = 0; path < count; ++path)
    if (!moved.refused[path]) outcome.via |= uint64_t{1} << job.paths[path]->gpu();
  return outcome;
}

void Target::read_counts(Ticket& ticket) {
  if (!ticket.unread || !(ticket.is_free() || ticket.has_landed)) return;
  ticket.unread = false;
  auto& counts = counts_[static_cast<size_t>(ticket.direction)];
  if (ticket.has_landed) {  // an orphan, whose report never comes: who carried what is not known
    counts[0].slices += ticket.bytes.slice_count;
    counts[0].bytes += ticket.bytes.size_bytes;
    return;
  }
  for (int path = 0; path < ticket.path_count; ++path) {
    Count& count = counts[ticket.lane_paths[path]];
    count.slices += ticket.report->slices[path];
    count.bytes += uint64_t{ticket.report->slices[path]} * ticket.bytes.slice_bytes -
                   ticket.report->short_bytes[path];
  }
}

bool Target::harvest() {
  const std::unique_lock lock(mutex_, std::try_to_lock);
  if (!lock) return false;
  for (Ticket& ticket : tickets_->tickets()) read_counts(ticket);
  return tickets_->all_free();
}

void Target::add_counts(PathCounts& counts) {
  const std::unique_lock lock(mutex_, std::try_to_lock);
  if (!lock) return;
  for (const Direction direction : {Direction::kHostToDevice, Direction::kDeviceToHost})
    for (size_t path = 0; path <= relays_.size(); ++path) {
      const Count& count = counts_[static_cast<size_t>(direction)][path];
      if (count.slices != 0)
        counts.add(
            {endpoint_.gpu(), via_[path], direction, Mover::kKernel, count.slices, count.bytes});
    }
}

bool Target::uses(const Endpoint& endpoint) {
  std::lock_guard lock(mutex_);
  if (&endpoint_ == &endpoint) return true;
  // By GPU: a relay that refused has been dropped, and its earlier kernels may be under way still.
  const auto relays = std::span(via_).subspan(1, relays_.size());
  return endpoint.is_primary() &&
         std::find(relays.begin(), relays.end(), endpoint.gpu()) != relays.end();
}

void Target::lose_relay(const Endpoint& relay) {
  std::lock_guard lock(mutex_);
  orphan_users_of(relay);
}

// By GPU: a relay that refused has been dropped, and its earlier kernels may be under way still. So
// may those of a ticket that was retired when it was launched.
void Target::orphan_users_of(const Endpoint& relay) {
  if (!relay.is_primary()) return;
  for (Endpoint*& known : relays_)
    if (known == &relay) known = nullptr;
  for (Ticket& ticket : tickets_->tickets())
    for (int path = 1; path < ticket.path_count && ticket.unread && !ticket.is_free(); ++path)
      if (via_[ticket.lane_paths[path]] == relay.gpu()) ticket.is_orphan = true;
}

uint64_t Target::oldest_ns(uint64_t now_ns) {
  const std::unique_lock lock(mutex_, std::try_to_lock);
  if (!lock) return 1;
  uint64_t oldest_ns = 0;
  for (const Ticket& ticket : tickets_->tickets()) {
    if (!ticket.is_in_use() && !ticket.is_orphan) continue;
    const uint64_t age_ns = now_ns > ticket.launched_ns ? now_ns - ticket.launched_ns : 1;
    oldest_ns = std::max(oldest_ns, age_ns);
  }
  return oldest_ns;
}

bool Target::mend(std::span<const Endpoint* const> failed, uint64_t now_ns) {
  const bool is_lost = has_failed();
  const std::unique_lock lock(mutex_, std::try_to_lock);
  if (!lock) return false;
  for (const Endpoint* relay : failed) orphan_users_of(*relay);
  if (is_lost) {
    give_up();
    return true;
  }
  std::vector<Ticket>& tickets = tickets_->tickets();
  for (Ticket& ticket : tickets) read_counts(ticket);
  if (std::any_of(tickets.begin(), tickets.end(), [](const Ticket& one) { return one.is_orphan; }))
    rescue_->step(now_ns);
  release_lanes();
  return true;
}

// Under the lock. The kernels in flight have died with this target's own context.
void Target::give_up() {
  for (Ticket& ticket : tickets_->tickets()) {
    if (!ticket.is_free()) ticket.retired = true;
    ticket.is_orphan = false;
  }
  release_lanes();
}

// Those whose latest transfer has been retired wait for nothing, unless it is an orphan still.
void Target::release_lanes() {
  for (Lane& lane : lanes_->lanes())
    if (lane.last != nullptr && lane.last->retired && !lane.last->is_orphan) lane.last = nullptr;
}

void Target::restore_relay(Endpoint& relay) {
  std::lock_guard lock(mutex_);
  for (size_t place = 0; place < relays_.size(); ++place)
    if (relays_[place] == nullptr && via_[place + 1] == relay.gpu() &&
        lanes_->replace_relay(place, relay).ok())
      relays_[place] = &relay;
}

void Target::abandon() {
  std::lock_guard lock(mutex_);
  give_up();
  tickets_->abandon();
  lists_->abandon();
}

}  // namespace braid::multipath
