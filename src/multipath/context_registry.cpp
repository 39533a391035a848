#include "multipath/context_registry.h"

#include <algorithm>
#include <bit>
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

void end(Target& target, bool is_drained, bool context_lives) {
  if (is_drained)
    target.close(context_lives);
  else
    target.abandon();
}

}  // namespace

ContextRegistry::~ContextRegistry() {
  const std::unique_lock lock(mutex_);
  const cuda::RelaxedCapture relaxed(driver_);
  const auto deadline = steady_clock::now() + kDrainLimit;
  for_each_target([&](Target& target) { end(target, drain(target, deadline), true); });
  for (const auto& entry : entries_) {
    if (entry->target == nullptr) unload_kernels(*entry);
    if (entry->is_held) driver_.cuDevicePrimaryCtxRelease(entry->where.device);
  }
  entries_.clear();
  free_spare_memory();
  open_relays_.clear();
}

// In a relay's context: in none the driver would refuse to unregister memory.
void ContextRegistry::free_spare_memory() {
  if (open_relays_.empty()) return;
  if (std::all_of(open_relays_.begin(), open_relays_.end(),
                  [](const auto& relay) { return relay->is_idle(); })) {
    const cuda::ScopedContext scope(driver_, open_relays_.front()->context());
    spare_.clear();
  } else {
    spare_.abandon();
  }
}

// Keeps an error for `problems`, and passes it on.
Status ContextRegistry::note(Status status) {
  if (!status.ok()) problems_.push_back(status.message());
  return status;
}

// ---- Relays ----

GpuSet ContextRegistry::to_open() const {
  const GpuSet wanted = requested_.load(std::memory_order_acquire);
  GpuSet relays = 0;
  for (int gpu = 0; gpu < relays_.gpu_count(); ++gpu)
    if ((wanted & gpu_bit(gpu)) != 0) relays |= relays_.of(gpu);
  return relays & ~(open_relays() | refused_);
}

// A GPU that cannot be opened (its memory is full, another process has it alone) is done without.
Result<bool> ContextRegistry::open_next_relay() {
  if (const GpuSet waiting = to_open(); waiting != 0) {
    const cuda::RelaxedCapture relaxed(driver_);
    const int gpu = std::countr_zero(waiting);
    const PeerProcesses::OpeningLock opening = peers_.lock_opening();
    auto relay = Relay::open(driver_, options_, relays_.device(gpu), gpu, notify_);
    const std::unique_lock lock(mutex_);
    if (relay.ok()) {
      open_relays_.push_back(std::move(relay).value());
    } else {
      refused_ |= gpu_bit(gpu);
      if (first_refusal_.ok()) first_refusal_ = relay.status();
      (void)note(Status::error(relay.status().message() + ". It does not relay"));
    }
    return true;
  }
  const std::shared_lock lock(mutex_);
  if (open_relays_.empty() && !first_refusal_.ok()) return first_refusal_;
  return false;
}

// The lock is tried only: whoever asks is about to tell the program that there is no memory.
uint64_t ContextRegistry::release_buffers(CUdevice device) {
  const cuda::RelaxedCapture relaxed(driver_);
  const std::shared_lock lock(mutex_, std::try_to_lock);
  const int gpu = relays_.gpu_of(device);
  uint64_t given_bytes = 0;
  if (lock)
    for (const auto& relay : open_relays_)
      if (relay->gpu() == gpu) given_bytes += relay->release_buffers();
  return given_bytes;
}

bool ContextRegistry::restore_buffers() {
  const std::shared_lock lock(mutex_);
  bool is_whole = true;
  for (const auto& relay : open_relays_) {
    if (relay->has_buffers()) continue;
    const cuda::RelaxedCapture relaxed(driver_);
    is_whole = relay->restore_buffers().ok() && is_whole;
  }
  return is_whole;
}

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
    const Busy busy(*entry);
    (void)open_target(lock, *entry);
  }
  ready_.store(ready, std::memory_order_release);
}

ContextRegistry::Entry* ContextRegistry::next_without_target(GpuSet gpus) const {
  for (const auto& entry : entries_)
    if ((gpus & gpu_bit(entry->where.gpu)) != 0 && entry->target == nullptr && !entry->is_refused &&
        !entry->is_busy && !entry->is_ending)
      return entry.get();
  return nullptr;
}

// The lock is free meanwhile: copies of other GPUs go on. What fails is in problems_ too.
Status ContextRegistry::open_target(Lock& lock, Entry& entry) {
  const ProgramContext& where = entry.where;
  std::vector<Relay*> relays = open_relays_for(where.gpu);
  lock.unlock();
  std::erase_if(relays,
                [&](const Relay* relay) { return relay->reach(where.context) != CUDA_SUCCESS; });
  auto target =
      Target::open(driver_, options_, planner_, contention_, spare_, where, std::move(relays));
  lock.lock();
  entry.is_refused = !target.ok();
  if (!entry.is_refused) {
    entry.target = std::move(target).value();
    return {};
  }
  return note(Status::error(target.status().message() + ". Copies of GPU " +
                            std::to_string(where.gpu) + " stay native"));
}

// In order of preference: when few paths suffice, those of the target's own socket cross nothing
// shared.
std::vector<Relay*> ContextRegistry::open_relays_for(int gpu) const {
  std::vector<Relay*> relays;
  for (const auto& relay : open_relays_)
    if ((relays_.of(gpu) & gpu_bit(relay->gpu())) != 0) relays.push_back(relay.get());
  std::stable_partition(relays.begin(), relays.end(), [&](const Relay* relay) {
    return relays_.are_neighbours(relay->gpu(), gpu);
  });
  return relays;
}

// ---- Contexts come ----

bool ContextRegistry::has(CUcontext context) {
  const std::shared_lock lock(mutex_);
  return find(context) != nullptr;
}

Status ContextRegistry::add(CUcontext context) {
  if (has(context)) return {};
  const cuda::RelaxedCapture relaxed(driver_);
  CUdevice device = 0;
  {
    const cuda::ScopedContext scope(driver_, context);
    CUresult asked = scope.status();
    if (asked == CUDA_SUCCESS) asked = driver_.cuCtxGetDevice(&device);
    BRAID_TRY(driver_.check(asked, "asking a context for its GPU"));
  }
  const int gpu = relays_.gpu_of(device);
  if (gpu < 0) return Status::error("a context is of no known GPU");
  Lock lock(mutex_);
  Entry* const entry = find(context) == nullptr ? &make_entry(gpu, context, false) : nullptr;
  lock.unlock();
  return entry != nullptr ? load_and_open(*entry) : Status();
}

// Cheap, and beside copies of other threads: most calls bring nothing new.
Status ContextRegistry::add_primary(int gpu) {
  if (gpu < 0) return {};
  const CUdevice device = relays_.device(gpu);
  const auto is_seen = [&] { return (seen_primaries_ & gpu_bit(gpu)) != 0; };
  {
    const std::shared_lock lock(mutex_);
    if (is_seen()) return {};
  }
  CUcontext context = nullptr;
  if (!cuda::has_primary_context(driver_, device) ||
      driver_.cuDevicePrimaryCtxRetain(&context, device) != CUDA_SUCCESS)
    return {};
  const cuda::RelaxedCapture relaxed(driver_);
  Lock lock(mutex_);
  const bool is_new = !is_seen() && find(context) == nullptr;
  seen_primaries_ |= gpu_bit(gpu);
  Entry* entry = is_new ? &make_entry(gpu, context, true) : nullptr;
  lock.unlock();
  if (entry != nullptr) return load_and_open(*entry);
  driver_.cuDevicePrimaryCtxRelease(device);
  return {};
}

ContextRegistry::Entry& ContextRegistry::make_entry(int gpu, CUcontext context, bool is_held) {
  auto entry = std::make_unique<Entry>();
  entry->where = {context, relays_.device(gpu), gpu, relays_.neighbours_of(gpu), {}};
  entry->is_held = is_held;
  entries_.push_back(std::move(entry));
  return *entries_.back();
}

// The driver may wait for the context's streams. A context in which the kernels cannot be loaded is
// a target all the same: contiguous copies need none.
Status ContextRegistry::load_and_open(Entry& entry) {
  const ProgramContext& where = entry.where;
  Lock lock(mutex_, std::defer_lock);
  const Busy busy(entry);  // ends before the lock: `open_targets` misses nobody
  auto kernels = [&] {
    const cuda::ScopedContext scope(driver_, where.context);
    return load_pull_kernels(driver_, options_, where.device, where.gpu);
  }();
  lock.lock();
  if (kernels.ok())
    entry.where.kernels = kernels.value();
  else
    (void)note(Status::error(kernels.status().message() + ". Batches stay native there"));
  return is_ready(where.gpu) && !entry.is_ending ? open_target(lock, entry) : Status();
}

// ---- Contexts go ----

void ContextRegistry::forget(CUcontext context, End how) {
  Lock lock(mutex_);
  Entry* const found = find(context);
  if (found == nullptr) return;
  found->is_ending = true;  // nobody else finds it from now on
  lock.unlock();
  const cuda::RelaxedCapture relaxed(driver_);
  while (found->is_busy) std::this_thread::sleep_for(kDrainStep);
  const bool is_drained =
      found->target == nullptr || drain(*found->target, steady_clock::now() + kDrainLimit);
  lock.lock();
  const std::unique_ptr<Entry> entry = take(*found);
  if (entry->target != nullptr) entry->target->add_counts(forgotten_);
  lock.unlock();
  // What dies with its context is left to it: to give it back might wait for the program.
  if (entry->target != nullptr)
    end(*entry->target, is_drained, how == End::kReleased);
  else if (how == End::kReleased)
    unload_kernels(*entry);
  if (!entry->is_held) return;
  driver_.cuDevicePrimaryCtxRelease(entry->where.device);
  lock.lock();
  seen_primaries_ &= ~gpu_bit(entry->where.gpu);
}

std::unique_ptr<ContextRegistry::Entry> ContextRegistry::take(Entry& entry) {
  const auto at = std::find_if(entries_.begin(), entries_.end(),
                               [&](const auto& one) { return one.get() == &entry; });
  std::unique_ptr<Entry> taken = std::move(*at);
  entries_.erase(at);
  return taken;
}

// Of a context that has not become a target, which unloads its own.
void ContextRegistry::unload_kernels(Entry& entry) {
  const cuda::ScopedContext scope(driver_, entry.where.context);
  if (scope.status() == CUDA_SUCCESS && entry.where.kernels.module != nullptr)
    driver_.cuModuleUnload(entry.where.kernels.module);
}

// ---- Who is there ----

ContextRegistry::Entry* ContextRegistry::find(CUcontext context) {
  for (const auto& entry : entries_)
    if (entry->where.context == context && !entry->is_ending) return entry.get();
  return nullptr;
}

// The stream says which context is meant; its GPU must be the memory's.
ContextRegistry::FoundTarget ContextRegistry::find_target(const Classification& memory,
                                                          CUstream stream) {
  FoundTarget found{.lock = std::shared_lock(mutex_, std::try_to_lock)};
  const bool is_target_ready = is_ready(memory.gpu);
  if (!is_target_ready) request_relays(gpu_bit(memory.gpu));
  if (!found.lock || !is_target_ready) return found;
  found.verdict = Verdict::kForeignContext;
  CUcontext context = nullptr;
  if (driver_.cuStreamGetCtx(stream, &context) != CUDA_SUCCESS ||
      (memory.context != nullptr && memory.context != context))
    return found;
  Entry* entry = find(context);
  if (entry == nullptr || entry->target == nullptr || entry->where.gpu != memory.gpu) return found;
  found.target = entry->target.get();
  found.verdict = Verdict::kAccelerated;
  return found;
}

GpuSet ContextRegistry::open_relays() const {
  GpuSet open = 0;
  for (const auto& relay : open_relays_) open |= gpu_bit(relay->gpu());
  return open;
}

GpuSet ContextRegistry::open_relays_of(int gpu) {
  const std::shared_lock lock(mutex_);
  return open_relays() & relays_.of(gpu);
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

size_t ContextRegistry::count_relays(std::span<RelayCount> into) {
  const std::shared_lock lock(mutex_, std::try_to_lock);
  size_t count = 0;
  if (!lock) return count;
  const uint64_t now_ns = driver_.clock->now_ns();
  for (const auto& relay : open_relays_)
    if (count < into.size()) into[count++] = relay->count(now_ns);
  return count;
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
