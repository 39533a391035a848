#include "multipath/target.h"

#include <algorithm>

#include "base/try.h"
#include "cuda/scoped_context.h"
#include "multipath/batch_lists.h"
#include "multipath/slice_size.h"
#include "multipath/waits.h"

namespace braid::multipath {
namespace {

// A transfer waits for SMs if its turn came longer ago than this, and than so many times what all
// that have begun are expected to take, and its kernels have not left.
constexpr uint64_t kOverdueNs = 100'000'000;
constexpr double kOverdueBy = 4;

size_t index_of(Mover mover) { return mover == Mover::kKernel ? 0 : 1; }

}  // namespace

// A transfer on its way through `submit`.
struct Target::Submission {
  const Batch& batch;
  uint64_t size_bytes;
  const Classification& memory;
  Intent intent;
  uint64_t now_ns;
  bool is_cold;
  Plan plan;
  TransferState* state = nullptr;
  std::array<Relay*, cuda::kMaxPaths> candidates{};
  size_t candidate_count = 0;
  std::array<RelayPath, cuda::kMaxPaths> paths{};
  size_t path_count = 0;  // relays that have channels for it

  std::span<const RelayPath> relays() const { return std::span(paths).first(path_count); }
};

Target::Target(const cuda::Driver& driver, const Options& options, const Planner& planner,
               LinkContention& contention, SpareMemory& spare, const ProgramContext& where,
               std::vector<Relay*> relays)
    : driver_(driver),
      options_(options),
      planner_(planner),
      contention_(contention),
      spare_(spare),
      where_(where),
      relays_(std::move(relays)),
      slot_(static_cast<uint32_t>(where.gpu) % cuda::kMaxPaths) {}

Result<std::unique_ptr<Target>> Target::open(const cuda::Driver& driver, const Options& options,
                                             const Planner& planner, LinkContention& contention,
                                             SpareMemory& spare, const ProgramContext& where,
                                             std::vector<Relay*> relays) {
  relays.resize(std::min<size_t>(relays.size(), cuda::kMaxPaths - 1));
  std::unique_ptr<Target> target(
      new Target(driver, options, planner, contention, spare, where, relays));  // owner: target
  if (relays.empty()) return target;
  // All in a context of braid's own: in the program's, somebody may hold the lock. In one with
  // nothing under way, if there is one: a stream more might wait for a channel that is held.
  const auto idle =
      std::find_if(relays.begin(), relays.end(), [](Relay* one) { return one->is_idle(); });
  const Relay* where_to_work = idle != relays.end() ? *idle : relays.front();
  const cuda::ScopedContext scope(driver, where_to_work->context());
  BRAID_TRY(driver.check(scope.status(), "entering a relay's context"));
  std::vector<int> relay_gpus;
  for (const Relay* relay : relays) relay_gpus.push_back(relay->gpu());
  BRAID_TRY(target->memory_.open(
      driver, where.gpu, relay_gpus,
      [&](uint64_t size_bytes, const std::string& what) { return spare.take(size_bytes, what); }));
  return target;
}

Outcome Target::submit(const Batch& batch, uint64_t size_bytes, int path_limit,
                       const Classification& memory, Intent intent) {
  if (relays_.empty()) return Verdict::kNoRelay;
  const uint64_t now_ns = driver_.clock->now_ns();
  Submission submission{.batch = batch,
                        .size_bytes = size_bytes,
                        .memory = memory,
                        .intent = intent,
                        .now_ns = now_ns,
                        .is_cold = now_ns > warm_until_ns_.load(),
                        .plan = {}};
  if (std::none_of(relays_.begin(), relays_.end(), [&](const Relay* relay) {
        return (memory.allowed & gpu_bit(relay->gpu())) != 0;
      }))
    return Verdict::kNoRelay;
  const Mover mover = planner_.mover_for(batch, where_.kernels.are_loaded());
  const size_t count = list_relays(submission, path_limit, mover);
  submission.plan = plan_for(submission, std::span(submission.candidates).first(count), mover);
  if (intent == Intent::kForecast) {
    Outcome outcome = submission.plan.verdict;
    outcome.mover = submission.plan.mover;
    outcome.forecast = submission.plan.forecast;
    return outcome;
  }
  record_copy(submission);
  submission.candidate_count =
      std::min(count, static_cast<size_t>(std::max(0, submission.plan.paths - 1)));
  Outcome outcome = submission.plan.verdict;
  if (submission.plan.mover == Mover::kKernel)
    outcome = copy_by_kernels(submission);
  else if (submission.plan.mover == Mover::kCopyEngine)
    outcome = copy_by_engines(submission);
  outcome.forecast = submission.plan.forecast;
  return outcome;
}

// Carried or not: what the direct path alone would take.
void Target::record_copy(const Submission& submission) {
  contention_.begin(where_.gpu, submission.batch.direction, submission.size_bytes,
                    submission.now_ns,
                    submission.now_ns + static_cast<uint64_t>(native_us(submission) * 1e3));
}

double Target::native_us(const Submission& submission) const {
  return static_cast<double>(submission.size_bytes) /
         planner_.native_bytes_per_us(submission.batch.direction);
}

// Every relay whose link has no work of its own; kernels take no part where other contexts' kernels
// are at work either.
size_t Target::list_relays(Submission& submission, int path_limit, Mover mover) {
  size_t count = 0;
  for (Relay* relay : relays_) {
    if (path_limit > 0 && count + 1 >= static_cast<size_t>(path_limit)) break;
    if ((submission.memory.allowed & gpu_bit(relay->gpu())) == 0) continue;
    if (contention_.contend(where_.gpu, relay->gpu(), submission.batch.direction,
                            submission.now_ns))
      continue;
    if (relay->health().is_resting(submission.now_ns)) continue;
    if (mover == Mover::kKernel
            ? relay->is_shared(submission.now_ns)
            : relay->is_congested(submission.batch.direction, submission.now_ns) ||
                  (submission.memory.is_plain() && !relay->has_buffers()))
      continue;
    submission.candidates[count++] = relay;
  }
  return count;
}

int Target::far_among(std::span<Relay* const> relays) const {
  return static_cast<int>(std::count_if(relays.begin(), relays.end(), [this](const Relay* relay) {
    return (where_.near & gpu_bit(relay->gpu())) == 0;
  }));
}

Plan Target::plan_for(const Submission& submission, std::span<Relay* const> relays, Mover mover) {
  const Plan chosen = planner_.plan(
      submission.batch, submission.size_bytes,
      {.paths = static_cast<int>(relays.size()) + 1,
       .far_relays = far_among(relays),
       .is_cold = submission.is_cold,
       .kernels_blocked = mover == Mover::kKernel && are_kernels_blocked(submission.now_ns),
       .is_staged = submission.memory.is_plain(),
       .mover = mover});
  if (submission.intent == Intent::kCopy) mark_warm(chosen, submission.now_ns);
  return chosen;
}

// Relays are warm while they work, and for a while after. The first copy after a pause may stay
// native, since they have to wake up; its followers count as warm for having been preceded, or a
// program of such copies would never have warm relays.
void Target::mark_warm(const Plan& chosen, uint64_t now_ns) {
  const double busy_us = chosen.mover == Mover::kNative ? 0 : chosen.expected_us();
  const uint64_t until_ns = now_ns + static_cast<uint64_t>(busy_us * 1e3) + kColdAfterNs;
  uint64_t before_ns = warm_until_ns_.load();
  while (before_ns < until_ns && !warm_until_ns_.compare_exchange_weak(before_ns, until_ns)) {
  }
}

// A transfer's turn has come, and long after it its kernels have not left: the program's own hold
// the SMs. Reads host memory only.
bool Target::are_kernels_blocked(uint64_t now_ns) {
  const std::lock_guard lock(mutex_);
  uint64_t first_begun_ns = UINT64_MAX;
  double expected_us = 0;
  for (TransferState* state : memory_.transfers->in_use()) {
    if (state->is_acquired || state->retired || state->mover != Mover::kKernel ||
        state->have_kernels_left())
      continue;
    if (state->begun_ns == 0 && state->has_begun()) state->begun_ns = now_ns;
    if (state->begun_ns == 0) continue;
    first_begun_ns = std::min(first_begun_ns, state->begun_ns);
    expected_us += state->expected_us;
  }
  if (first_begun_ns == UINT64_MAX) return false;
  const auto overdue_ns = static_cast<uint64_t>(kOverdueBy * expected_us * 1e3);
  return now_ns > first_begun_ns + std::max(kOverdueNs, overdue_ns);
}

YieldPolicy Target::yield_policy_of(const Batch& batch) const {
  YieldPolicy yield_policy;
  yield_policy.priority = batch.priority;
  yield_policy.yields = options_.yields;
  // Urgent transfers go first anyway.
  if (batch.priority == Priority::kBulk) yield_policy.relay_slot = slot_;
  yield_policy.is_favoured = options_.favoured_gpu == where_.gpu;
  return yield_policy;
}

// A transfer's state, and channels of every relay that has one to spare. False: no state is free.
bool Target::acquire(Submission& submission, const ChannelRequest& request) {
  const StreamKey user = stream_key(driver_, where_.context, submission.batch.stream);
  {
    const std::lock_guard lock(mutex_);
    submission.state = memory_.transfers->acquire(user);
    if (submission.state == nullptr) return false;
    read_counts(*submission.state);
    ++submission.state->generation;
    submission.state->size_bytes = submission.size_bytes;
    submission.state->taken_ns = submission.now_ns;
    submission.state->expected_us = submission.plan.expected_us();
  }
  submission.state->direction = submission.batch.direction;
  for (size_t i = 0; i < submission.candidate_count; ++i) {
    const RelayPath path = submission.candidates[i]->acquire(user, request);
    if (path.channel_count != 0) submission.paths[submission.path_count++] = path;
  }
  // One relay of each copy in turn: to time a share takes two calls of the driver.
  const size_t timed = submission.state->generation % std::max<size_t>(submission.path_count, 1);
  for (size_t i = 0; i < submission.path_count; ++i)
    submission.paths[i].may_time = submission.paths[i].may_time && i == timed;
  return true;
}

// After the mover: what became of the copy, and of its relays.
Outcome Target::conclude(Submission& submission, uint64_t slice_bytes, const Enqueued& moved) {
  Outcome outcome = moved.verdict;
  outcome.error = moved.error;
  outcome.mover = submission.state->mover;
  outcome.slice_bytes = static_cast<uint32_t>(std::min<uint64_t>(slice_bytes, UINT32_MAX));
  outcome.via = gpu_bit(where_.gpu) | moved.via;
  for (size_t i = 0; i < submission.path_count; ++i)
    if (moved.refused[i] != CUDA_SUCCESS)
      submission.paths[i].relay->health().refused(driver_, moved.refused[i], submission.now_ns);
  release(submission);
  return outcome;
}

void Target::release(Submission& submission) {
  for (const RelayPath& path : submission.relays()) path.relay->release(path);
  const std::lock_guard lock(mutex_);
  submission.state->is_acquired = false;
}

CopySplitRequest Target::split_request(const Submission& submission,
                                       std::span<Relay* const> relays) const {
  return {.size_bytes = submission.size_bytes,
          .paths = static_cast<int>(relays.size()) + 1,
          .far_relays = far_among(relays),
          .is_staged = submission.memory.is_plain(),
          .buffer_bytes = relays_.front()->buffer_bytes()};
}

// Kernels share no plan: each path takes what it can, and they are alike.
std::vector<CopyPath> Target::paths_of(Direction direction, uint64_t size_bytes, int path_limit) {
  const Batch batch(direction, Segment{nullptr, 0, size_bytes}, nullptr);
  const Classification memory{.context = where_.context, .gpu = where_.gpu};
  Submission submission{.batch = batch,
                        .size_bytes = size_bytes,
                        .memory = memory,
                        .intent = Intent::kForecast,
                        .now_ns = driver_.clock->now_ns(),
                        .is_cold = false,
                        .plan = {}};
  const DirectionCosts& costs = planner_.costs_of(direction);
  CopyPath own{where_.gpu, size_bytes, costs.native_bytes_per_us / 1e3, 0};
  const Mover mover = planner_.mover_for(batch, where_.kernels.are_loaded());
  const std::span candidates(submission.candidates.data(),
                             list_relays(submission, path_limit, mover));
  const Plan chosen = plan_for(submission, candidates, mover);
  if (chosen.mover == Mover::kNative || chosen.paths < 2) return {own};
  const std::span relays = candidates.first(static_cast<size_t>(chosen.paths) - 1);
  const CopySplitRequest request = split_request(submission, relays);
  const CopySplit split = planner_.split_copy(direction, request);
  const bool is_by_kernels = chosen.mover == Mover::kKernel;
  const uint64_t even_bytes = size_bytes / static_cast<uint64_t>(chosen.paths);
  const auto rate = [&](int path) {
    return (is_by_kernels ? costs.kernel_bytes_per_us : path_bytes_per_us(costs, request, path)) /
           1e3;
  };
  own = {where_.gpu, is_by_kernels ? even_bytes : split.direct_bytes, rate(0), 0};
  std::vector<CopyPath> paths = {own};
  for (size_t i = 0; i < relays.size(); ++i) {
    const uint64_t share = is_by_kernels ? even_bytes : split.relay_bytes[i];
    if (share > 0)
      paths.push_back({relays[i]->gpu(), share, rate(static_cast<int>(i) + 1),
                       costs.engine_hop_bytes_per_us / 1e3});
  }
  return paths;
}

Outcome Target::copy_by_engines(Submission& submission) {
  const auto candidates = std::span(submission.candidates).first(submission.candidate_count);
  CopySplitRequest request = split_request(submission, candidates);
  CopySplit plan = planner_.split_copy(submission.batch.direction, request);
  const size_t channels = request.is_staged ? kChannelsOfPath : 1;
  if (!acquire(submission, {.mover = Mover::kCopyEngine,
                            .channel_count = channels,
                            .needs_buffers = request.is_staged,
                            .ops = ops_of(plan.relay_bytes[0], plan.chunk_bytes, channels)}))
    return Verdict::kSaturated;
  submission.state->mark_kernels_left();
  if (submission.path_count == 0 && !candidates.empty()) {
    release(submission);
    return Verdict::kSaturated;
  }
  if (submission.path_count != candidates.size()) {
    std::array<Relay*, cuda::kMaxPaths> left{};
    for (size_t i = 0; i < submission.path_count; ++i) left[i] = submission.paths[i].relay;
    request.paths = static_cast<int>(submission.path_count) + 1;
    request.far_relays = far_among(std::span(left).first(submission.path_count));
    plan = planner_.split_copy(submission.batch.direction, request);
  }
  // Fewer relays than asked for have larger shares, and one channel has the chunks of both.
  for (size_t i = 0; i < submission.path_count; ++i) {
    const RelayPath& path = submission.paths[i];
    if (ops_of(plan.relay_bytes[i], plan.chunk_bytes, path.channel_count) <= path.room_ops)
      continue;
    release(submission);
    return Verdict::kSaturated;
  }
  submission.state->mover = Mover::kCopyEngine;
  const CopyEngineJob job{.direction = submission.batch.direction,
                          .whole = submission.batch.first(),
                          .stream = submission.batch.stream,
                          .is_staged = request.is_staged,
                          .plan = plan,
                          .native_us = native_us(submission),
                          .relays = submission.relays()};
  const Enqueued moved = enqueue_copies(driver_, job, *submission.state);
  Outcome outcome = conclude(submission, plan.chunk_bytes, moved);
  if (moved.verdict != Verdict::kAccelerated) return outcome;
  const std::lock_guard lock(mutex_);
  uint64_t direct_bytes = submission.size_bytes;
  for (size_t i = 0; i < submission.path_count; ++i) {
    const uint64_t bytes = moved.relay_bytes[i];
    if (bytes == 0) continue;
    Count& count =
        count_of(Mover::kCopyEngine, submission.batch.direction, job.relays[i].relay->gpu());
    count.slices += (bytes + plan.chunk_bytes - 1) / plan.chunk_bytes;
    count.bytes += bytes;
    direct_bytes -= bytes;
  }
  count_of(Mover::kCopyEngine, submission.batch.direction, where_.gpu).add(direct_bytes);
  if (submission.batch.own_link != nullptr) outcome.own_bytes = direct_bytes;
  return outcome;
}

Outcome Target::copy_by_kernels(Submission& submission) {
  if (!acquire(submission, {.mover = Mover::kKernel, .ops = 4})) return Verdict::kSaturated;
  TransferState& state = *submission.state;
  state.mover = Mover::kKernel;
  const uint64_t own_bytes = own_bytes_of(submission);
  state.bytes = {.size_bytes = submission.size_bytes - own_bytes};
  if (state.bytes.size_bytes == 0 || !slice(submission.batch, state, own_bytes)) {
    const bool is_for_relays = state.bytes.size_bytes != 0 || submission.path_count == 0;
    state.mark_kernels_left();
    release(submission);
    return is_for_relays ? Verdict::kSaturated : Verdict::kNoGain;
  }
  const KernelJob job{.direction = submission.batch.direction,
                      .stream = submission.batch.stream,
                      .context = where_.context,
                      .bytes = state.bytes,
                      .own_link = submission.batch.own_link,
                      .own_bytes = own_bytes,
                      .yield_policy = yield_policy_of(submission.batch),
                      .direct = memory_.direct(where_.kernels),
                      .relays = submission.relays()};
  const Enqueued moved = enqueue_kernels(driver_, job, state);
  state.unread = moved.verdict != Verdict::kDriverError;
  if (!state.unread) state.mark_kernels_left();
  state.path_count = static_cast<int>(submission.path_count) + 1;
  state.via[0] = where_.gpu;
  for (size_t i = 0; i < submission.path_count; ++i) state.via[i + 1] = job.relays[i].relay->gpu();
  Outcome outcome = conclude(submission, state.bytes.slice_bytes, moved);
  outcome.own_bytes = own_bytes;
  if (own_bytes != 0 && moved.verdict == Verdict::kAccelerated) {
    const std::lock_guard lock(mutex_);
    count_of(Mover::kCopyEngine, submission.batch.direction, where_.gpu).add(own_bytes);
  }
  return outcome;
}

// What the driver is to carry over the target's own link, if no kernel may run here; all of it if
// no relay has a channel.
uint64_t Target::own_bytes_of(const Submission& submission) const {
  if (submission.batch.own_link == nullptr) return 0;
  const BatchSplit split = planner_.split_batch(submission.batch, submission.size_bytes,
                                                submission.path_count, submission.is_cold);
  return cut_near(submission.batch.segments(), split.own_bytes);
}

// All but the first `skip_bytes` of a batch. False when there is no room for its lists. They are
// the transfer's until its kernels have left.
bool Target::slice(const Batch& batch, TransferState& state, uint64_t skip_bytes) {
  SlicedBytes& bytes = state.bytes;
  if (batch.segments().size() == 1) {
    const Segment& whole = batch.first();
    const auto host = reinterpret_cast<uint64_t>(whole.host);
    const bool to_device = batch.direction == Direction::kHostToDevice;
    bytes.slice_bytes = slice_bytes_for(bytes.size_bytes, options_.slice_bytes);
    bytes.source = to_device ? host : whole.device;
    bytes.destination = to_device ? whole.device : host;
    bytes.aligned_alike = ((bytes.source ^ bytes.destination) & 15) == 0;
    bytes.slice_count = static_cast<uint32_t>(
        cuda::slice_count_of(bytes.destination, bytes.size_bytes, bytes.slice_bytes));
    return true;
  }
  std::span<cuda::SliceList> room;
  {
    const std::lock_guard lock(mutex_);
    room = take_lists(*memory_.lists, batch, options_.slice_bytes, state);
  }
  if (room.empty()) return false;
  write_lists(batch, room, bytes, skip_bytes);
  return true;
}

Target::Count& Target::count_of(Mover mover, Direction direction, int gpu) {
  return counts_[index_of(mover)][static_cast<size_t>(direction)][static_cast<size_t>(gpu)];
}

void Target::read_counts(TransferState& state) {
  if (!state.unread || !state.have_kernels_left()) return;
  state.unread = false;
  for (int path = 0; path < state.path_count; ++path) {
    Count& count = count_of(Mover::kKernel, state.direction, state.via[path]);
    count.slices += state.report->slices[path];
    count.bytes += uint64_t{state.report->slices[path]} * state.bytes.slice_bytes -
                   state.report->short_bytes[path];
  }
}

bool Target::collect_finished() {
  const std::unique_lock lock(mutex_, std::try_to_lock);
  if (!lock) return false;
  if (!memory_.is_open()) return true;
  for (TransferState& state : memory_.transfers->transfers())
    if (!state.is_acquired) read_counts(state);
  return memory_.transfers->all_free();
}

bool Target::describe_waits(std::string& lines) {
  const std::unique_lock lock(mutex_, std::try_to_lock);
  if (!lock) return false;
  if (!memory_.is_open()) return true;
  const uint64_t now_ns = driver_.clock->now_ns();
  for (const TransferState* state : memory_.transfers->in_use())
    if (!state->is_acquired && state->is_in_use())
      lines += describe_wait(*state, where_.gpu, now_ns) + "\n";
  return true;
}

void Target::add_counts(PathCounts& counts) {
  const std::unique_lock lock(mutex_, std::try_to_lock);
  if (!lock) return;
  for (const Mover mover : {Mover::kKernel, Mover::kCopyEngine})
    for (const Direction direction : {Direction::kHostToDevice, Direction::kDeviceToHost})
      for (int gpu = 0; gpu < kMostGpus; ++gpu) {
        const Count& count = count_of(mover, direction, gpu);
        if (count.slices != 0)
          counts.add({where_.gpu, gpu, direction, mover, count.slices, count.bytes});
      }
}

void Target::close(bool context_lives) {
  const std::lock_guard lock(mutex_);
  if (context_lives) {
    const cuda::ScopedContext scope(driver_, where_.context);
    if (scope.status() == CUDA_SUCCESS && where_.kernels.module != nullptr)
      driver_.cuModuleUnload(where_.kernels.module);
  }
  free_memory();
}

// Also of a target that is half open. The counters are of no context: to free them waits for
// nobody. What a transfer that was retired may yet use is left to it.
void Target::free_memory() {
  if (memory_.is_open()) {
    const auto& all = memory_.transfers->transfers();
    if (std::any_of(all.begin(), all.end(),
                    [](const TransferState& state) { return state.retired; }))
      return leave_memory();
  }
  if (memory_.words != nullptr) spare_.give_back(std::move(memory_.words));
  if (memory_.lists != nullptr) spare_.give_back(memory_.lists->take_memory());
  memory_.free();
}

void Target::leave_memory() {
  memory_.abandon();
  memory_.free();
}

Target::~Target() { free_memory(); }

void Target::abandon() {
  const std::lock_guard lock(mutex_);
  if (memory_.is_open()) leave_memory();
}

}  // namespace braid::multipath
