#include "multipath/roster.h"

#include <algorithm>
#include <bit>
#include <thread>

#include "cuda/relaxed_capture.h"
#include "cuda/scoped_context.h"

namespace braid::multipath {
namespace {

using std::chrono::steady_clock;

// How long `forget` and the destructor give transfers in flight.
constexpr std::chrono::milliseconds kDrainLimit{5000};
constexpr std::chrono::microseconds kDrainStep{200};

}  // namespace

Roster::Roster(const cuda::Driver& driver, const Options& options, const Relays& relays,
               const Planner& planner, Presence& presence, Say say)
    : driver_(driver),
      options_(options),
      relays_(relays),
      planner_(planner),
      presence_(presence),
      say_(say),
      every_gpu_(relays.gpu_count() < kMostGpus ? gpu_bit(relays.gpu_count()) - 1 : kEveryGpu),
      seen_primaries_(static_cast<size_t>(relays.gpu_count()), false) {}

template <typename Visit>
void Roster::for_each_target(const Visit& visit) {
  for (const auto& known : known_)
    if (known->target != nullptr) visit(*known->target);
}

namespace {

// True when the target has no transfer in flight. Reads host memory only.
bool drain(Target& target, steady_clock::time_point deadline) {
  while (!target.harvest()) {
    if (steady_clock::now() >= deadline) return false;
    std::this_thread::sleep_for(kDrainStep);
  }
  return true;
}

}  // namespace

Roster::~Roster() {
  const std::unique_lock lock(mutex_);
  const cuda::RelaxedCapture relaxed(driver_);
  const auto deadline = steady_clock::now() + kDrainLimit;
  for_each_target([&](Target& target) {
    if (drain(target, deadline))
      target.close(true);
    else
      target.abandon();
  });
  for (const auto& known : known_) {
    if (known->target == nullptr) unload_kernels(*known);
    if (known->is_held) driver_.cuDevicePrimaryCtxRelease(known->where.device);
  }
  known_.clear();
  open_relays_.clear();
}

// Keeps an error for `problems`, and passes it on.
Status Roster::note(Status status) {
  if (!status.ok()) problems_.push_back(status.message());
  return status;
}

// ---- Relays ----

GpuSet Roster::to_open() const {
  const GpuSet wanted = wanted_.load(std::memory_order_acquire);
  GpuSet relays = 0;
  for (int gpu = 0; gpu < relays_.gpu_count(); ++gpu)
    if ((wanted & gpu_bit(gpu)) != 0) relays |= relays_.of(gpu);
  return relays & ~tried_;
}

// A GPU that cannot be opened (its memory is full, another process has it alone) is done without.
Result<bool> Roster::open_next() {
  if (const GpuSet waiting = to_open(); waiting != 0) {
    const cuda::RelaxedCapture relaxed(driver_);
    const int gpu = std::countr_zero(waiting);
    tried_ |= gpu_bit(gpu);
    const Presence::Turn turn = presence_.take_turn();
    auto relay = Relay::open(driver_, options_, relays_.device(gpu), gpu, say_);
    const std::unique_lock lock(mutex_);
    if (relay.ok()) {
      open_relays_.push_back(std::move(relay).value());
    } else {
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
uint64_t Roster::give_back_memory(CUdevice device) {
  const cuda::RelaxedCapture relaxed(driver_);
  const std::shared_lock lock(mutex_, std::try_to_lock);
  const int gpu = relays_.gpu_of(device);
  uint64_t given_bytes = 0;
  if (lock)
    for (const auto& relay : open_relays_)
      if (relay->gpu() == gpu) given_bytes += relay->give_back_buffers();
  return given_bytes;
}

bool Roster::tend() {
  const std::shared_lock lock(mutex_);
  bool is_whole = true;
  for (const auto& relay : open_relays_) {
    if (relay->has_buffers()) continue;
    const cuda::RelaxedCapture relaxed(driver_);
    is_whole = relay->restore_buffers().ok() && is_whole;
  }
  return is_whole;
}

// A GPU that is wanted since `open_next` found nothing is not ready, unless its relays are open.
// The lock is free while a target is opened: copies of other GPUs go on, and a context may go.
void Roster::begin() {
  const cuda::RelaxedCapture relaxed(driver_);
  std::unique_lock lock(mutex_);
  const GpuSet wanted = wanted_.load(std::memory_order_acquire);
  GpuSet ready = 0;
  for (int gpu = 0; gpu < relays_.gpu_count(); ++gpu)
    if ((wanted & gpu_bit(gpu)) != 0 && (relays_.of(gpu) & ~tried_) == 0) ready |= gpu_bit(gpu);
  while (Known* known = next_without_target(ready)) {
    const ProgramContext where = known->where;
    const uint64_t number = known->number;
    const std::vector<Relay*> relays = relays_for(where);
    lock.unlock();
    auto target = Target::open(driver_, options_, planner_, link_use_, where, relays);
    lock.lock();
    known = find(where.context);
    if (known != nullptr && known->number == number) (void)keep(*known, std::move(target));
  }
  ready_.store(ready, std::memory_order_release);
}

Roster::Known* Roster::next_without_target(GpuSet gpus) const {
  for (const auto& known : known_)
    if ((gpus & gpu_bit(known->where.gpu)) != 0 && known->target == nullptr && !known->is_refused)
      return known.get();
  return nullptr;
}

// What fails is in problems_ too.
Status Roster::keep(Known& known, Result<std::unique_ptr<Target>> opened) {
  known.is_refused = !opened.ok();
  if (opened.ok()) {
    known.target = std::move(opened).value();
    return {};
  }
  return note(Status::error(opened.status().message() + ". Copies of GPU " +
                            std::to_string(known.where.gpu) + " stay native"));
}

// The open relays that reach the target, in order of preference: when few paths suffice, those of
// the target's own socket cross nothing shared.
std::vector<Relay*> Roster::relays_for(const ProgramContext& target) {
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
bool Roster::has_news(CUcontext context) {
  const std::shared_lock lock(mutex_);
  if (context != nullptr && find(context) == nullptr) return true;
  for (int gpu = 0; gpu < relays_.gpu_count(); ++gpu) {
    unsigned flags = 0;
    int active = 0;
    if (!seen_primaries_[static_cast<size_t>(gpu)])
      driver_.cuDevicePrimaryCtxGetState(relays_.device(gpu), &flags, &active);
    if (active != 0) return true;
  }
  return false;
}

Status Roster::add(CUcontext context) {
  if (!has_news(context)) return {};
  const cuda::RelaxedCapture relaxed(driver_);
  cuda::ScopedContext scope(driver_);
  const std::unique_lock lock(mutex_);
  Status status = add_active_primaries();
  if (!status.ok() || context == nullptr || find(context) != nullptr) return status;
  CUdevice device = 0;
  CUresult asked = scope.enter(context);
  if (asked == CUDA_SUCCESS) asked = driver_.cuCtxGetDevice(&device);
  status = driver_.check(asked, "asking a context for its GPU");
  if (!status.ok()) return status;
  const int gpu = relays_.gpu_of(device);
  return gpu >= 0 ? add_known(gpu, context, false) : Status::error("a context is of no known GPU");
}

Status Roster::add_active_primaries() {
  Status first;
  for (int gpu = 0; gpu < relays_.gpu_count(); ++gpu) {
    if (seen_primaries_[static_cast<size_t>(gpu)]) continue;
    const CUdevice device = relays_.device(gpu);
    unsigned flags = 0;
    int active = 0;
    driver_.cuDevicePrimaryCtxGetState(device, &flags, &active);
    CUcontext context = nullptr;
    if (active == 0 || driver_.cuDevicePrimaryCtxRetain(&context, device) != CUDA_SUCCESS) continue;
    seen_primaries_[static_cast<size_t>(gpu)] = true;
    if (find(context) != nullptr) {
      driver_.cuDevicePrimaryCtxRelease(device);
      continue;
    }
    const Status status = add_known(gpu, context, true);
    if (!status.ok() && first.ok()) first = status;
  }
  return first;
}

// A context in which the kernels cannot be loaded is a target all the same: contiguous copies need
// none.
Status Roster::add_known(int gpu, CUcontext context, bool is_held) {
  auto known = std::make_unique<Known>();
  known->number = ++known_count_;
  known->where = {context, relays_.device(gpu), gpu, relays_.neighbours_of(gpu), {}};
  known->is_held = is_held;
  {
    const cuda::ScopedContext scope(driver_, context);
    auto kernels = load_pull_kernels(driver_, options_, known->where.device, gpu);
    if (kernels.ok())
      known->where.kernels = kernels.value();
    else
      (void)note(Status::error(kernels.status().message() + ". Batches stay native there"));
  }
  known_.push_back(std::move(known));
  if (!is_ready(gpu)) return {};
  const ProgramContext& where = known_.back()->where;
  return keep(*known_.back(),
              Target::open(driver_, options_, planner_, link_use_, where, relays_for(where)));
}

// ---- Contexts go ----

void Roster::forget(CUcontext context, End end) {
  const std::unique_lock lock(mutex_);
  const auto at = std::find_if(known_.begin(), known_.end(), [context](const auto& known) {
    return known->where.context == context;
  });
  if (at == known_.end()) return;
  const std::unique_ptr<Known> known = std::move(*at);
  known_.erase(at);
  const cuda::RelaxedCapture relaxed(driver_);
  if (known->target != nullptr) {
    const bool is_drained = drain(*known->target, steady_clock::now() + kDrainLimit);
    // What dies with its context is left to it: to give it back might wait for the program.
    if (is_drained)
      known->target->close(end == End::kReleased);
    else
      known->target->abandon();
    known->target->add_counts(forgotten_);
  }
  if (known->target == nullptr && end == End::kReleased) unload_kernels(*known);
  if (!known->is_held) return;
  seen_primaries_[static_cast<size_t>(known->where.gpu)] = false;
  driver_.cuDevicePrimaryCtxRelease(known->where.device);
}

// Of a context that has not become a target, which unloads its own.
void Roster::unload_kernels(Known& known) {
  const cuda::ScopedContext scope(driver_, known.where.context);
  if (scope.status() == CUDA_SUCCESS && known.where.kernels.module != nullptr)
    driver_.cuModuleUnload(known.where.kernels.module);
}

// ---- Who is there ----

Roster::Known* Roster::find(CUcontext context) {
  for (const auto& known : known_)
    if (known->where.context == context) return known.get();
  return nullptr;
}

// The stream says which context is meant; its GPU must be the memory's.
Roster::Use Roster::use(const Classification& memory, CUstream stream) {
  Use use{.lock = std::shared_lock(mutex_, std::try_to_lock)};
  const bool is_target_ready = is_ready(memory.gpu);
  if (!is_target_ready) want(gpu_bit(memory.gpu));
  if (!use.lock || !is_target_ready) return use;
  use.verdict = Verdict::kForeignContext;
  CUcontext context = nullptr;
  if (driver_.cuStreamGetCtx(stream, &context) != CUDA_SUCCESS ||
      (memory.context != nullptr && memory.context != context))
    return use;
  Known* known = find(context);
  if (known == nullptr || known->target == nullptr || known->where.gpu != memory.gpu) return use;
  use.target = known->target.get();
  use.verdict = Verdict::kAccelerated;
  return use;
}

GpuSet Roster::open_relays_of(int gpu) {
  const std::shared_lock lock(mutex_);
  GpuSet open = 0;
  for (const auto& relay : open_relays_) open |= gpu_bit(relay->gpu());
  return open & relays_.of(gpu);
}

bool Roster::has_target_with_relay() {
  const std::shared_lock lock(mutex_);
  bool has_any = false;
  for_each_target([&](const Target& target) { has_any = has_any || target.has_relay(); });
  return has_any;
}

std::vector<std::string> Roster::problems() {
  const std::shared_lock lock(mutex_);
  std::vector<std::string> all = problems_;
  for (const auto& relay : open_relays_)
    if (std::string problem = relay->health().problem(driver_); !problem.empty())
      all.push_back(std::move(problem));
  return all;
}

std::string Roster::describe_waits() {
  const std::shared_lock lock(mutex_, std::try_to_lock);
  if (!lock) return "a thread adds or forgets a context\n";
  std::string lines;
  for_each_target([&](Target& target) {
    if (!target.describe_waits(lines)) lines += "a thread is enqueuing a copy\n";
  });
  return lines;
}

size_t Roster::count_relays(std::span<RelayCount> into) {
  const std::shared_lock lock(mutex_, std::try_to_lock);
  size_t count = 0;
  if (!lock) return count;
  const uint64_t now_ns = driver_.clock->now_ns();
  for (const auto& relay : open_relays_)
    if (count < into.size()) into[count++] = relay->count(now_ns);
  return count;
}

void Roster::collect(std::chrono::milliseconds wait, PathCounts& counts) {
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
