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
      every_gpu_(relays.gpu_count() < kMostGpus ? gpu_bit(relays.gpu_count()) - 1 : kEveryGpu),
      seen_primaries_(static_cast<size_t>(relays.gpu_count()), false) {}

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

void end(Target& target, steady_clock::time_point deadline, bool context_lives) {
  if (drain(target, deadline))
    target.close(context_lives);
  else
    target.abandon();
}

}  // namespace

ContextRegistry::~ContextRegistry() {
  const std::unique_lock lock(mutex_);
  const cuda::RelaxedCapture relaxed(driver_);
  const auto deadline = steady_clock::now() + kDrainLimit;
  for_each_target([&](Target& target) { end(target, deadline, true); });
  for (const auto& entry : entries_) {
    if (entry->target == nullptr) unload_kernels(*entry);
    if (entry->is_held) driver_.cuDevicePrimaryCtxRelease(entry->where.device);
  }
  entries_.clear();
  open_relays_.clear();
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
// open. The lock is free while a target is opened: copies of other GPUs go on, and a context may
// go.
void ContextRegistry::open_targets() {
  const cuda::RelaxedCapture relaxed(driver_);
  std::unique_lock lock(mutex_);
  const GpuSet wanted = requested_.load(std::memory_order_acquire);
  const GpuSet tried = open_relays() | refused_;
  GpuSet ready = 0;
  for (int gpu = 0; gpu < relays_.gpu_count(); ++gpu)
    if ((wanted & gpu_bit(gpu)) != 0 && (relays_.of(gpu) & ~tried) == 0) ready |= gpu_bit(gpu);
  while (Entry* entry = next_without_target(ready)) {
    const ProgramContext where = entry->where;
    const uint64_t number = entry->number;
    const std::vector<Relay*> relays = relays_for(where);
    lock.unlock();
    auto target = Target::open(driver_, options_, planner_, contention_, where, relays);
    lock.lock();
    entry = find(where.context);
    if (entry != nullptr && entry->number == number) (void)install(*entry, std::move(target));
  }
  ready_.store(ready, std::memory_order_release);
}

ContextRegistry::Entry* ContextRegistry::next_without_target(GpuSet gpus) const {
  for (const auto& entry : entries_)
    if ((gpus & gpu_bit(entry->where.gpu)) != 0 && entry->target == nullptr && !entry->is_refused)
      return entry.get();
  return nullptr;
}

// What fails is in problems_ too.
Status ContextRegistry::install(Entry& entry, Result<std::unique_ptr<Target>> opened) {
  entry.is_refused = !opened.ok();
  if (opened.ok()) {
    entry.target = std::move(opened).value();
    return {};
  }
  return note(Status::error(opened.status().message() + ". Copies of GPU " +
                            std::to_string(entry.where.gpu) + " stay native"));
}

// The open relays that reach the target, in order of preference: when few paths suffice, those of
// the target's own socket cross nothing shared.
std::vector<Relay*> ContextRegistry::relays_for(const ProgramContext& target) {
  std::vector<Relay*> reaching;
  for (const auto& relay : open_relays_)
    if ((relays_.of(target.gpu) & gpu_bit(relay->gpu())) != 0 &&
        relay->reach(target.context) == CUDA_SUCCESS)
      reaching.push_back(relay.get());
  std::stable_partition(reaching.begin(), reaching.end(), [&](const Relay* relay) {
    return relays_.are_neighbours(relay->gpu(), target.gpu);
  });
  return reaching;
}

// ---- Contexts come ----

// Cheap, and beside copies of other threads: most calls bring nothing new.
bool ContextRegistry::has_new_context(CUcontext context) {
  const std::shared_lock lock(mutex_);
  if (context != nullptr && find(context) == nullptr) return true;
  for (int gpu = 0; gpu < relays_.gpu_count(); ++gpu)
    if (!seen_primaries_[static_cast<size_t>(gpu)] &&
        cuda::has_primary_context(driver_, relays_.device(gpu)))
      return true;
  return false;
}

Status ContextRegistry::add(CUcontext context) {
  if (!has_new_context(context)) return {};
  const cuda::RelaxedCapture relaxed(driver_);
  cuda::ScopedContext scope(driver_);
  const std::unique_lock lock(mutex_);
  const Status status = add_active_primaries();
  if (!status.ok() || context == nullptr || find(context) != nullptr) return status;
  CUdevice device = 0;
  CUresult asked = scope.enter(context);
  if (asked == CUDA_SUCCESS) asked = driver_.cuCtxGetDevice(&device);
  BRAID_TRY(driver_.check(asked, "asking a context for its GPU"));
  const int gpu = relays_.gpu_of(device);
  return gpu >= 0 ? add_entry(gpu, context, false) : Status::error("a context is of no known GPU");
}

Status ContextRegistry::add_active_primaries() {
  Status first;
  for (int gpu = 0; gpu < relays_.gpu_count(); ++gpu) {
    if (seen_primaries_[static_cast<size_t>(gpu)]) continue;
    const CUdevice device = relays_.device(gpu);
    CUcontext context = nullptr;
    if (!cuda::has_primary_context(driver_, device) ||
        driver_.cuDevicePrimaryCtxRetain(&context, device) != CUDA_SUCCESS)
      continue;
    seen_primaries_[static_cast<size_t>(gpu)] = true;
    if (find(context) != nullptr) {
      driver_.cuDevicePrimaryCtxRelease(device);
      continue;
    }
    const Status status = add_entry(gpu, context, true);
    if (!status.ok() && first.ok()) first = status;
  }
  return first;
}

// A context in which the kernels cannot be loaded is a target all the same: contiguous copies need
// none.
Status ContextRegistry::add_entry(int gpu, CUcontext context, bool is_held) {
  auto entry = std::make_unique<Entry>();
  entry->number = ++entry_count_;
  entry->where = {context, relays_.device(gpu), gpu, relays_.neighbours_of(gpu), {}};
  entry->is_held = is_held;
  {
    const cuda::ScopedContext scope(driver_, context);
    auto kernels = load_pull_kernels(driver_, options_, entry->where.device, gpu);
    if (kernels.ok())
      entry->where.kernels = kernels.value();
    else
      (void)note(Status::error(kernels.status().message() + ". Batches stay native there"));
  }
  entries_.push_back(std::move(entry));
  if (!is_ready(gpu)) return {};
  const ProgramContext& where = entries_.back()->where;
  return install(*entries_.back(),
                 Target::open(driver_, options_, planner_, contention_, where, relays_for(where)));
}

// ---- Contexts go ----

void ContextRegistry::forget(CUcontext context, End how) {
  const std::unique_lock lock(mutex_);
  const auto at = std::find_if(entries_.begin(), entries_.end(), [context](const auto& entry) {
    return entry->where.context == context;
  });
  if (at == entries_.end()) return;
  const std::unique_ptr<Entry> entry = std::move(*at);
  entries_.erase(at);
  const cuda::RelaxedCapture relaxed(driver_);
  if (entry->target != nullptr) {
    // What dies with its context is left to it: to give it back might wait for the program.
    end(*entry->target, steady_clock::now() + kDrainLimit, how == End::kReleased);
    entry->target->add_counts(forgotten_);
  }
  if (entry->target == nullptr && how == End::kReleased) unload_kernels(*entry);
  if (!entry->is_held) return;
  seen_primaries_[static_cast<size_t>(entry->where.gpu)] = false;
  driver_.cuDevicePrimaryCtxRelease(entry->where.device);
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
    if (entry->where.context == context) return entry.get();
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
