#include "multipath/copy_engine/mover.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <mutex>

#include "multipath/copy_engine/scheduler.h"
#include "multipath/copy_engine/station.h"
#include "multipath/copy_engine/task.h"
#include "multipath/thread.h"

namespace braid::multipath {

using copy_engine::kMaxGpus;
using copy_engine::kMaxTasks;
using copy_engine::Piece;
using copy_engine::PiecePool;
using copy_engine::Policy;
using copy_engine::Scheduler;
using copy_engine::Station;
using copy_engine::Task;

namespace {

// 1 GiB in 16 KB segments; 2 MB of the CPU's memory.
constexpr size_t kPieces = 65536;

// How long `forget` and the destructor give transfers in flight, and then the thread itself.
constexpr std::chrono::seconds kDrainLimit{5};
constexpr std::chrono::seconds kGiveUpLimit{1};

constexpr uint64_t kPostingNs = 1'000;
// A stream may be held back for seconds: looked at less and less often, so that a start is seen
// late by a small part of the time that has been waited for it.
constexpr uint64_t kStartsMostNs = 100'000;
constexpr uint64_t kStartsShare = 16;

uint64_t pause_after(Scheduler::Load load, uint64_t waited_ns) {
  if (load == Scheduler::Load::kPosting) return kPostingNs;
  if (load != Scheduler::Load::kStarts) return copy_engine::kStepNs;
  return std::clamp(waited_ns / kStartsShare, copy_engine::kStepNs, kStartsMostNs);
}

Policy policy_of(const Options& options, const copy_engine::PaceCosts& costs) {
  Policy policy;
  policy.costs = costs;
  policy.slice_bytes = options.slice_bytes;
  policy.direct_first = options.direct_first;
  policy.yields = options.yields;
  if (options.favoured_gpu >= 0) {
    policy.relay_order = copy_engine::RelayOrder::kFavourTarget;
    policy.favoured_gpu = options.favoured_gpu;
  }
  return policy;
}

}  // namespace

class CopyEngineMover::Impl {
 public:
  Impl(const cuda::Driver& driver, const Options& options, const Policy& policy)
      : driver_(driver),
        device_memory_bytes_(options.device_memory_bytes),
        tasks_(kMaxTasks),
        pieces_(kPieces, kMaxTasks),
        scheduler_(driver, policy, uint64_t{options.deadline_ms} * 1'000'000) {
    for (uint32_t id = 0; id < kMaxTasks; ++id) tasks_[id].id = id;
    inbox_.reserve(kMaxTasks);
  }
  ~Impl();

  Status prepare(Endpoint& endpoint);
  void forget(Endpoint& endpoint);
  Outcome submit(const Batch& batch, Endpoint& target, std::span<Endpoint* const> relays);
  bool is_idle();
  bool drain(std::chrono::milliseconds limit);
  void add_counts(PathCounts& counts);
  bool is_forked() const { return getpid() != pid_; }

 private:
  struct Post {
    std::unique_ptr<Station> station;
    bool is_leaving = false;
    bool is_forced = false;
    bool has_left = false;
  };
  using Lock = std::unique_lock<std::mutex>;

  Post* find(const Endpoint& endpoint);
  Verdict take_task(const Batch& batch, Endpoint& target, std::span<Endpoint* const> relays,
                    Task*& task);
  uint32_t first_slice_bytes(const Task& task) const;
  void give_back(Task& task);
  Verdict start_thread();
  void wake();
  void run();
  void rest(Lock& lock);
  bool take_in();
  void count(const Task& task);

  const cuda::Driver& driver_;
  const uint64_t device_memory_bytes_;
  const pid_t pid_ = getpid();
  std::mutex mutex_;                 // never held during a driver call
  std::condition_variable work_;     // the thread has something to do
  std::condition_variable settled_;  // the thread rests, or a station has left
  std::vector<std::unique_ptr<Post>> posts_;
  std::vector<Task> tasks_;
  PiecePool pieces_;
  std::vector<Task*> inbox_;
  size_t in_flight_ = 0;
  PathCounts counts_;
  bool is_resting_ = true;
  bool stops_ = false;
  Thread thread_;
  Scheduler scheduler_;  // the thread's; anybody's with the lock while it rests
};

// ---- Contexts ----

Status CopyEngineMover::Impl::prepare(Endpoint& endpoint) {
  if (endpoint.gpu() >= kMaxGpus)
    return Status::error("GPU " + std::to_string(endpoint.gpu()) + " is beyond the " +
                         std::to_string(kMaxGpus) + " that can take part");
  auto station = Station::open(driver_, endpoint, device_memory_bytes_);
  if (!station.ok()) return station.status();
  auto post = std::make_unique<Post>();
  post->station = std::move(station).value();
  const Lock lock(mutex_);
  posts_.push_back(std::move(post));
  return {};
}

CopyEngineMover::Impl::Post* CopyEngineMover::Impl::find(const Endpoint& endpoint) {
  for (const auto& post : posts_)
    if (&post->station->endpoint() == &endpoint && !post->is_leaving) return post.get();
  return nullptr;
}

void CopyEngineMover::Impl::forget(Endpoint& endpoint) {
  Lock lock(mutex_);
  Post* post = find(endpoint);
  if (post == nullptr) return;
  post->is_leaving = true;
  const auto has_left = [&] {
    if (is_resting_ && !post->has_left) post->has_left = scheduler_.release(*post->station, true);
    return post->has_left;
  };
  if (!settled_.wait_for(lock, kDrainLimit, has_left)) {
    post->is_forced = true;
    settled_.wait_for(lock, kGiveUpLimit, has_left);
  }
  const auto at = std::find_if(posts_.begin(), posts_.end(),
                               [&](const auto& other) { return other.get() == post; });
  std::unique_ptr<Post> gone = std::move(*at);
  posts_.erase(at);
  const bool is_safe = gone->has_left && !gone->is_forced;
  lock.unlock();
  if (!is_safe) gone->station->abandon();
  // owner: the thread is inside the driver with it, and may touch it for as long as that takes
  if (!gone->has_left) (void)gone.release();
}

// ---- Transfers ----

Outcome CopyEngineMover::Impl::submit(const Batch& batch, Endpoint& target,
                                      std::span<Endpoint* const> relays) {
  if (is_forked()) return Verdict::kNotReady;
  driver_.clock->now_ns();  // base/clock.h: what is shared with the thread is touched after this
  Task* task = nullptr;
  {
    const Lock lock(mutex_);
    const Verdict verdict = take_task(batch, target, relays, task);
    if (verdict != Verdict::kAccelerated) return verdict;
  }
  const Station& station = *task->target;
  Outcome outcome = Verdict::kAccelerated;
  outcome.mover = Mover::kCopyEngine;
  outcome.via = uint64_t{1} << target.gpu();
  for (int i = 0; i < task->relay_count; ++i) outcome.via |= uint64_t{1} << task->relays[i]->gpu();
  outcome.slice_bytes = first_slice_bytes(*task);
  const bool is_announced =
      station.announce_start(batch.stream, task->id, task->generation) == CUDA_SUCCESS;
  const bool is_enqueued =
      is_announced && station.close_gate(batch.stream, task->id, task->generation) == CUDA_SUCCESS;
  const Lock lock(mutex_);
  if (!is_enqueued) {
    task->is_retired = is_announced;
    give_back(*task);
    return Verdict::kDriverError;
  }
  inbox_.push_back(task);
  wake();
  return outcome;
}

Verdict CopyEngineMover::Impl::take_task(const Batch& batch, Endpoint& target,
                                         std::span<Endpoint* const> relays, Task*& task) {
  Post* post = find(target);
  if (post == nullptr || stops_) return Verdict::kForeignContext;
  const auto free = std::find_if(tasks_.begin(), tasks_.end(), [](const Task& candidate) {
    return !candidate.is_taken && !candidate.is_retired;
  });
  if (free == tasks_.end()) return Verdict::kSaturated;
  if (copy_engine::count_pieces(batch.segments) == 0) return Verdict::kBelowThreshold;
  const std::span<Piece> pieces = pieces_.take(batch.segments);
  if (pieces.empty()) return Verdict::kSaturated;
  task = &*free;
  task->pieces = pieces;
  task->is_taken = true;
  ++task->generation;
  task->target = post->station.get();
  task->direction = batch.direction;
  task->priority = batch.priority;
  task->size_bytes = pieces.back().offset + pieces.back().size_bytes;
  task->relay_count = 0;
  for (Endpoint* relay : relays) {
    const Post* other = find(*relay);
    if (other == nullptr || !other->station->can_relay() || relay->gpu() == target.gpu()) continue;
    if (task->relay_count < kMaxGpus) task->relays[task->relay_count++] = other->station.get();
  }
  ++in_flight_;
  const Verdict verdict = thread_.has_started() ? Verdict::kAccelerated : start_thread();
  if (verdict != Verdict::kAccelerated) give_back(*task);
  return verdict;
}

// What a relayed slice begins with, or a direct one where there is no relay; later ones shrink.
uint32_t CopyEngineMover::Impl::first_slice_bytes(const Task& task) const {
  const size_t pieces = task.pieces.size();
  const copy_engine::Remainder whole{task.direction,
                                     task.size_bytes,
                                     pieces > 1 ? task.size_bytes / pieces : 0,
                                     1 + task.relay_count,
                                     0,
                                     task.relay_count == 0};
  return static_cast<uint32_t>(std::min(scheduler_.pace().slice_bytes(whole), task.size_bytes));
}

void CopyEngineMover::Impl::give_back(Task& task) {
  pieces_.give_back(task.pieces);
  task.is_taken = false;
  --in_flight_;
}

// ---- The thread ----

// Under the lock. The thread gives back the hold on time that it is started under.
Verdict CopyEngineMover::Impl::start_thread() {
  driver_.clock->hold();
  if (thread_.start([](void* self) { static_cast<Impl*>(self)->run(); }, this))
    return Verdict::kAccelerated;
  driver_.clock->release();
  return Verdict::kNotReady;
}

// Under the lock.
void CopyEngineMover::Impl::wake() {
  if (!is_resting_) return;
  is_resting_ = false;
  driver_.clock->hold();
  work_.notify_one();
}

// Lets time go on without the thread, until somebody wakes it.
void CopyEngineMover::Impl::rest(Lock& lock) {
  driver_.clock->release();
  settled_.notify_all();
  work_.wait(lock, [&] { return !is_resting_; });
}

void CopyEngineMover::Impl::run() {
  Lock lock(mutex_);
  rest(lock);
  lock.unlock();
  CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
  driver_.cuThreadExchangeStreamCaptureMode(&mode);
  uint64_t waited_ns = 0;  // for streams to reach their transfers
  lock.lock();
  while (true) {
    const bool has_more = take_in();
    if (!has_more && stops_) break;
    if (!has_more) {
      is_resting_ = true;
      rest(lock);
      continue;
    }
    lock.unlock();
    const Scheduler::Load load = scheduler_.step();
    const uint64_t pause_ns = pause_after(load, waited_ns);
    waited_ns = load == Scheduler::Load::kStarts ? waited_ns + pause_ns : 0;
    driver_.clock->sleep_ns(pause_ns);
    lock.lock();
  }
  driver_.clock->release();
}

// Under the lock: hands over what has come in and what has ended. True while there is work.
bool CopyEngineMover::Impl::take_in() {
  for (Task* task : inbox_) scheduler_.accept(*task);
  inbox_.clear();
  for (const auto& post : posts_) {
    if (!post->is_leaving || post->has_left) continue;
    post->has_left = scheduler_.release(*post->station, post->is_forced);
    if (post->has_left) settled_.notify_all();
  }
  for (Task* task : scheduler_.finished()) {
    count(*task);
    give_back(*task);
  }
  scheduler_.finished().clear();
  return in_flight_ > 0;
}

void CopyEngineMover::Impl::count(const Task& task) {
  const int target = task.target->gpu();
  for (int gpu = 0; gpu < kMaxGpus; ++gpu)
    if (const copy_engine::Carried& carried = task.carried[gpu]; carried.slices != 0)
      counts_.add({target, gpu, task.direction, Mover::kCopyEngine, carried.slices, carried.bytes});
}

// ---- From outside ----

bool CopyEngineMover::Impl::is_idle() {
  const Lock lock(mutex_, std::try_to_lock);
  return lock && in_flight_ == 0 && is_resting_;
}

bool CopyEngineMover::Impl::drain(std::chrono::milliseconds limit) {
  Lock lock(mutex_);
  return settled_.wait_for(lock, limit, [&] { return in_flight_ == 0 && is_resting_; });
}

void CopyEngineMover::Impl::add_counts(PathCounts& counts) {
  const Lock lock(mutex_, std::try_to_lock);
  if (!lock) return;
  for (const PathCount& count : counts_.all()) counts.add(count);
  counts.copy_engine.thread_cpu_ns = thread_.cpu_time_ns();
  for (const auto& post : posts_)
    counts.copy_engine.relay_buffer_bytes[post->station->gpu()] += post->station->buffer_bytes();
}

CopyEngineMover::Impl::~Impl() {
  const bool is_drained = drain(kDrainLimit);
  Lock lock(mutex_);
  stops_ = true;
  for (const auto& post : posts_) {
    post->is_leaving = true;
    post->is_forced = true;
    if (!is_drained) post->station->abandon();
  }
  if (thread_.has_started()) wake();
  lock.unlock();
  thread_.join();
}

CopyEngineMover::CopyEngineMover(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

CopyEngineMover::~CopyEngineMover() {
  // owner: the parent, in a forked child: here its locks may be taken for ever
  if (impl_->is_forked()) (void)impl_.release();
}

Result<std::unique_ptr<CopyEngineMover>> CopyEngineMover::open(
    const cuda::Driver& driver, const Options& options, const copy_engine::PaceCosts& costs) {
  return open(driver, options, policy_of(options, costs));
}

Result<std::unique_ptr<CopyEngineMover>> CopyEngineMover::open(const cuda::Driver& driver,
                                                               const Options& options,
                                                               const Policy& policy) {
  auto impl = std::make_unique<Impl>(driver, options, policy);
  return std::unique_ptr<CopyEngineMover>(new CopyEngineMover(std::move(impl)));
}

Status CopyEngineMover::prepare(Endpoint& endpoint) { return impl_->prepare(endpoint); }
void CopyEngineMover::forget(Endpoint& endpoint) { impl_->forget(endpoint); }
Outcome CopyEngineMover::submit(const Batch& batch, Endpoint& target,
                                std::span<Endpoint* const> relays) noexcept {
  return impl_->submit(batch, target, relays);
}
bool CopyEngineMover::is_idle() noexcept { return impl_->is_idle(); }
bool CopyEngineMover::drain(int limit_ms) {
  return impl_->drain(std::chrono::milliseconds(limit_ms));
}
void CopyEngineMover::add_counts(PathCounts& counts) noexcept { impl_->add_counts(counts); }

}  // namespace braid::multipath
