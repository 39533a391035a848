#include "multipath/context_registry.h"

#include <algorithm>
#include <thread>

#include "base/try.h"
#include "cuda/queries.h"
#include "cuda/relaxed_capture.h"
#include "cuda/scoped_context.h"

namespace braid::multipath {
namespace {

using std::chrono::steady_clock;

// How long `forget` and the destructor give transfers in flight.
constexpr std::chrono::milliseconds kDrainLimit{5000};
constexpr std::chrono::microseconds kDrainStep{200};

}  // namespace

ContextRegistry::ContextRegistry(const cuda::Driver& driver, const Options& options,
                                 const RelayTopology& relays, const Planner& planner,
                                 PeerProcesses& peers, Notify notify)
    : driver_(driver),
      options_(options),
      relays_(relays),
      planner_(planner),
      peers_(peers),
      notify_(notify),
      every_gpu_(relays.gpu_count() < kMostGpus ? gpu_bit(relays.gpu_count()) - 1 : kEveryGpu) {}

template <typename Visit>
void ContextRegistry::for_each_target(const Visit& visit) {
  for (const auto& entry : entries_)
    if (entry->target != nullptr) visit(*entry->target);
}

namespace {

// True when the target has no transfer in flight. Reads host memory only.
bool drain(Target& target, steady_clock::time_point deadline) {
  while (!target.collect_finished()) {
    if (steady_clock::now() >= deadline) return false;
    std::this_thread::sleep_for(kDrainStep);
  }
  return true;
}

}  // namespace

// Nobody copies any more.
ContextRegistry::~ContextRegistry() {
  Lock lock(mutex_);
  for (const auto& entry : entries_) entry->state = Entry::State::kEnding;
  changed_.wait(lock, [&] {
    return std::all_of(entries_.begin(), entries_.end(),
                       [](const auto& entry) { return entry->users == 0; });
  });
  const cuda::RelaxedCapture relaxed(driver_);
  const auto deadline = steady_clock::now() + kDrainLimit;
  for (const auto& entry : entries_)
    end(*entry, entry->target == nullptr || drain(*entry->target, deadline), true);
  entries_.clear();
  free_spare_memory();
  open_relays_.clear();
}

// Keeps an error for `problems`, and passes it on.
Status ContextRegistry::note(Status status) {
  if (!status.ok()) problems_.push_back(status.message());
  return status;
}

// ---- Targets ----

// What a thread does with an entry, while others have the lock. At its end it has the lock.
class ContextRegistry::Loading {
 public:
  Loading(ContextRegistry& registry, Lock& lock, Entry& loaded)
      : entry(loaded), registry_(registry), lock_(lock) {
    entry.state = Entry::State::kLoading;
    ++entry.users;
  }
  ~Loading() {
    if (!lock_.owns_lock()) lock_.lock();
    if (entry.state == Entry::State::kLoading) entry.state = outcome;
    --entry.users;
    registry_.changed_.notify_all();
  }
  Loading(const Loading&) = delete;
  Loading& operator=(const Loading&) = delete;

  Entry& entry;
  Entry::State outcome = Entry::State::kRefused;  // unless another thread forgets it meanwhile

 private:
  ContextRegistry& registry_;
  Lock& lock_;
};

// A GPU that is wanted since `open_next_relay` found nothing is not ready, unless its relays are
// open.
void ContextRegistry::open_targets() {
  const cuda::RelaxedCapture relaxed(driver_);
  Lock lock(mutex_);
  const GpuSet wanted = requested_.load(std::memory_order_acquire);
  const GpuSet tried = open_relays() | refused_;
  GpuSet ready = 0;
  for (int gpu = 0; gpu < relays_.gpu_count(); ++gpu)
    if ((wanted & gpu_bit(gpu)) != 0 && (relays_.of(gpu) & ~tried) == 0) ready |= gpu_bit(gpu);
  while (Entry* entry = next_without_target(ready)) {
    Loading loading(*this, lock, *entry);
    (void)open_target(lock, loading);
  }
  ready_.store(ready, std::memory_order_release);
}

ContextRegistry::Entry* ContextRegistry::next_without_target(GpuSet gpus) const {
  for (const auto& entry : entries_)
    if ((gpus & gpu_bit(entry->where.gpu)) != 0 && entry->state == Entry::State::kLoaded)
      return entry.get();
  return nullptr;
}

// The lock is free meanwhile: copies of other GPUs go on. What fails is in problems_ too.
Status ContextRegistry::open_target(Lock& lock, Loading& loading) {
  const ProgramContext& where = loading.entry.where;
  std::vector<Relay*> relays = open_relays_for(where.gpu);
  lock.unlock();
  std::erase_if(relays,
                [&](const Relay* relay) { return relay->reach(where.context) != CUDA_SUCCESS; });
  auto target =
      Target::open(driver_, options_, planner_, contention_, spare_, where, std::move(relays));
  lock.lock();
  if (target.ok()) {
    loading.entry.target = std::move(target).value();
    loading.outcome = Entry::State::kOpen;
    return {};
  }
  return note(Status::error(target.status().message() + ". Copies of GPU " +
                            std::to_string(where.gpu) + " stay native"));
}

// ---- Contexts come ----

bool ContextRegistry::has(CUcontext context) {
  std::shared_lock lock(mutex_);
  const Entry* entry = find_loaded(lock, context);
  return entry != nullptr && entry->state != Entry::State::kEnding;
}

bool ContextRegistry::holds(CUcontext context) {
  const std::shared_lock lock(mutex_);
  const Entry* entry = find(context);
  return entry != nullptr && entry->is_held;
}

Status ContextRegistry::add_created(CUcontext context) {
  if (has(context)) return {};
  BRAID_LET(gpu, gpu_of(context));
  return add_entry(gpu, context, false);
}

// A primary context is held: the next one may have its handle. Whether this is one, only retaining
// it tells.
Status ContextRegistry::add(CUcontext context) {
  if (has(context)) return {};
  BRAID_LET(gpu, gpu_of(context));
  const CUcontext primary = retain_primary(gpu);
  const bool is_primary = primary == context;
  if (primary != nullptr && !is_primary) driver_.cuDevicePrimaryCtxRelease(relays_.device(gpu));
  return add_entry(gpu, context, is_primary);
}

// Cheap, and beside copies of other threads: most calls bring nothing new.
Status ContextRegistry::add_primary(int gpu, Kernels kernels) {
  if (gpu < 0 || has_primary(gpu)) return {};
  const CUcontext context = retain_primary(gpu);
  return context != nullptr ? add_entry(gpu, context, true, kernels) : Status();
}

Result<int> ContextRegistry::gpu_of(CUcontext context) {
  const cuda::RelaxedCapture relaxed(driver_);
  const cuda::ScopedContext scope(driver_, context);
  CUdevice device = 0;
  CUresult asked = scope.status();
  if (asked == CUDA_SUCCESS) asked = driver_.cuCtxGetDevice(&device);
  BRAID_TRY(driver_.check(asked, "asking a context for its GPU"));
  const int gpu = relays_.gpu_of(device);
  if (gpu < 0) return Status::error("a context is of no known GPU");
  return gpu;
}

// Null when it is not active.
CUcontext ContextRegistry::retain_primary(int gpu) {
  const CUdevice device = relays_.device(gpu);
  CUcontext context = nullptr;
  if (!cuda::has_primary_context(driver_, device) ||
      driver_.cuDevicePrimaryCtxRetain(&context, device) != CUDA_SUCCESS)
    return nullptr;
  return context;
}

// Braid holds the GPU's, also when it is about to let go.
bool ContextRegistry::has_primary(int gpu) {
  std::shared_lock lock(mutex_);
  const Entry* held = nullptr;
  changed_.wait(lock, [&] {
    const auto at = std::find_if(entries_.begin(), entries_.end(), [gpu](const auto& entry) {
      return entry->is_held && entry->where.gpu == gpu;
    });
    held = at != entries_.end() ? at->get() : nullptr;
    return held == nullptr || held->state != Entry::State::kLoading;
  });
  return held != nullptr;
}

// `is_held`: braid has retained the context, for the entry.
Status ContextRegistry::add_entry(int gpu, CUcontext context, bool is_held, Kernels kernels) {
  const cuda::RelaxedCapture relaxed(driver_);
  Lock lock(mutex_);
  if (const Entry* known = find_loaded(lock, context)) {
    const bool is_ending = known->state == Entry::State::kEnding;
    lock.unlock();
    if (is_held) driver_.cuDevicePrimaryCtxRelease(relays_.device(gpu));
    return is_ending ? Status::error("a context is ending") : Status();
  }
  entries_.push_back(std::make_unique<Entry>());
  Entry& entry = *entries_.back();
  entry.where = {context, relays_.device(gpu), gpu, relays_.neighbours_of(gpu), {}};
  entry.is_held = is_held;
  return load_and_open(lock, entry, kernels);
}

// The driver may wait for the context's streams. A context in which the kernels cannot be loaded is
// a target all the same: contiguous copies need none.
Status ContextRegistry::load_and_open(Lock& lock, Entry& entry, Kernels kernels) {
  const ProgramContext& where = entry.where;
  Loading loading(*this, lock, entry);
  if (kernels == Kernels::kLoad) {
    lock.unlock();
    auto loaded = [&] {
      const cuda::ScopedContext scope(driver_, where.context);
      return load_pull_kernels(driver_, options_, where.device, where.gpu);
    }();
    lock.lock();
    if (loaded.ok())
      entry.where.kernels = loaded.value();
    else
      (void)note(Status::error(loaded.status().message() + ". Batches stay native there"));
  }
  if (is_ready(where.gpu) && entry.state != Entry::State::kEnding)
    return open_target(lock, loading);
  loading.outcome = Entry::State::kLoaded;
  return {};
}

// ---- Contexts go ----

void ContextRegistry::forget(CUcontext context, End how) {
  Lock lock(mutex_);
  Entry* const entry = find(context);
  if (entry == nullptr) return;
  if (entry->state == Entry::State::kEnding)  // another thread forgets it
    return changed_.wait(lock, [&] {
      const Entry* left = find(context);
      return left == nullptr || left->state != Entry::State::kEnding;
    });
  entry->state = Entry::State::kEnding;
  changed_.wait(lock, [&] { return entry->users == 0; });
  lock.unlock();
  const bool is_drained =
      entry->target == nullptr || drain(*entry->target, steady_clock::now() + kDrainLimit);
  end(*entry, is_drained, how == End::kReleased);
  lock.lock();
  if (entry->target != nullptr) entry->target->add_counts(forgotten_);
  std::erase_if(entries_, [&](const auto& one) { return one.get() == entry; });
  changed_.notify_all();
}

// What dies with its context is left to it: to give it back might wait for the program.
void ContextRegistry::end(Entry& entry, bool is_drained, bool context_lives) {
  const ProgramContext& where = entry.where;
  if (entry.target != nullptr && is_drained) {
    entry.target->close(context_lives);
  } else if (entry.target != nullptr) {
    entry.target->abandon();
  } else if (context_lives && where.kernels.module != nullptr) {
    const cuda::ScopedContext scope(driver_, where.context);
    if (scope.status() == CUDA_SUCCESS) driver_.cuModuleUnload(where.kernels.module);
  }
  if (entry.is_held) driver_.cuDevicePrimaryCtxRelease(where.device);
}

// ---- Who is there ----

ContextRegistry::Entry* ContextRegistry::find(CUcontext context) {
  for (const auto& entry : entries_)
    if (entry->where.context == context) return entry.get();
  return nullptr;
}

// Waits for a thread that is loading it. The lock is free meanwhile.
template <typename AnyLock>
ContextRegistry::Entry* ContextRegistry::find_loaded(AnyLock& lock, CUcontext context) {
  Entry* entry = nullptr;
  changed_.wait(lock, [&] {
    entry = find(context);
    return entry == nullptr || entry->state != Entry::State::kLoading;
  });
  return entry;
}

// The stream says which context is meant; its GPU must be the memory's.
ContextRegistry::FoundTarget ContextRegistry::find_target(const Classification& memory,
                                                          CUstream stream) {
  if (!is_ready(memory.gpu)) {
    request_relays(gpu_bit(memory.gpu));
    return FoundTarget(Verdict::kNotReady);
  }
  CUcontext context = nullptr;
  if (driver_.cuStreamGetCtx(stream, &context) != CUDA_SUCCESS ||
      (memory.context != nullptr && memory.context != context))
    return FoundTarget(Verdict::kForeignContext);
  const std::shared_lock lock(mutex_, std::try_to_lock);
  if (!lock) return FoundTarget(Verdict::kNotReady);
  Entry* entry = find(context);
  if (entry == nullptr || entry->state == Entry::State::kRefused || entry->where.gpu != memory.gpu)
    return FoundTarget(Verdict::kForeignContext);
  if (entry->state != Entry::State::kOpen) return FoundTarget(Verdict::kNotReady);
  return FoundTarget(*this, *entry);
}

ContextRegistry::FoundTarget ContextRegistry::find_target_on(int gpu) {
  const std::shared_lock lock(mutex_, std::try_to_lock);
  if (lock)
    for (const auto& entry : entries_)
      if (entry->where.gpu == gpu && entry->state == Entry::State::kOpen)
        return FoundTarget(*this, *entry);
  return FoundTarget(Verdict::kNotReady);
}

// Without the lock, `forget` might look too early, and sleep on.
void ContextRegistry::leave(Entry& entry) {
  {
    const std::shared_lock lock(mutex_);
    if (--entry.users != 0 || entry.state != Entry::State::kEnding) return;
  }
  changed_.notify_all();
}

std::vector<std::string> ContextRegistry::problems() {
  const std::shared_lock lock(mutex_);
  std::vector<std::string> all = problems_;
  for (const auto& relay : open_relays_)
    if (std::string problem = relay->health().problem(driver_); !problem.empty())
      all.push_back(std::move(problem));
  return all;
}

std::string ContextRegistry::describe_waits() {
  const std::shared_lock lock(mutex_, std::try_to_lock);
  if (!lock) return "a thread adds or forgets a context\n";
  std::string lines;
  for_each_target([&](Target& target) {
    if (!target.describe_waits(lines)) lines += "a thread is enqueuing a copy\n";
  });
  return lines;
}

void ContextRegistry::collect(std::chrono::milliseconds wait, PathCounts& counts) {
  const auto deadline = steady_clock::now() + wait;
  std::shared_lock lock(mutex_, std::try_to_lock);
  while (!lock && steady_clock::now() < deadline) {
    std::this_thread::sleep_for(kDrainStep);
    (void)lock.try_lock();
  }
  if (!lock) return;
  for_each_target([&](Target& target) { drain(target, deadline); });
  for (const PathCount& count : forgotten_.all()) counts.add(count);
  for_each_target([&](Target& target) { target.add_counts(counts); });
}

}  // namespace braid::multipath
