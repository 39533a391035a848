#include "library/copier.h"

#include <algorithm>

#include "base/clock.h"
#include "multipath/staging/stager.h"
#include "preload/shapes.h"

namespace braid::library {

using multipath::Batch;
using multipath::Direction;
using multipath::Engine;
using multipath::Outcome;
using multipath::Segment;
using multipath::Staged;
using multipath::Verdict;
using multipath::staging::Stager;

namespace {

// Statistics are asked for when copies have just ended, and their last blocks may still be leaving.
constexpr int kStatisticsWaitMs = 100;

bool is_carried(const Outcome& outcome) {
  return outcome == Verdict::kAccelerated || outcome == Verdict::kStaged;
}

void add(const Outcome& outcome, uint64_t size_bytes, CallOutcome& call_outcome) {
  if (is_carried(outcome)) {
    call_outcome.accelerated_bytes += size_bytes;
    call_outcome.own_bytes += outcome.own_bytes;
    if (call_outcome.native_bytes == 0 && outcome == Verdict::kStaged)
      call_outcome.reason = Verdict::kStaged;
    return;
  }
  if (call_outcome.native_bytes == 0) call_outcome.reason = outcome;
  call_outcome.native_bytes += size_bytes;
}

// The first copies of a group, and the head of the next one.
class FirstCopies final : public multipath::OwnLink {
 public:
  FirstCopies(const cuda::Driver& driver, std::span<const Copy> copies, bool may_batch,
              CUstream stream, NativeArrays& arrays)
      : driver_(driver), copies_(copies), may_batch_(may_batch), stream_(stream), arrays_(arrays) {}

  CUresult copy(uint64_t first_bytes) const override {
    size_t whole = 0;
    for (; whole < copies_.size() && copies_[whole].size_bytes <= first_bytes; ++whole)
      first_bytes -= copies_[whole].size_bytes;
    const CUresult copied =
        copy_natively(driver_, copies_.first(whole), stream_, may_batch_, arrays_);
    if (copied != CUDA_SUCCESS || first_bytes == 0) return copied;
    const Copy head{copies_[whole].destination, copies_[whole].source, first_bytes};
    return copy_natively(driver_, {&head, 1}, stream_, false, arrays_);
  }

 private:
  const cuda::Driver& driver_;
  const std::span<const Copy> copies_;
  const bool may_batch_;
  const CUstream stream_;
  NativeArrays& arrays_;
};

// The driver finds out which side each address is on. It wants a pitch of one row, too.
CUresult copy_rows_natively(const cuda::Driver& driver, const Rows& rows, CUstream stream) {
  CUDA_MEMCPY2D copy{};
  copy.srcMemoryType = CU_MEMORYTYPE_UNIFIED;
  copy.srcDevice = rows.source;
  copy.srcPitch = std::max(rows.source_pitch_bytes, rows.row_bytes);
  copy.dstMemoryType = CU_MEMORYTYPE_UNIFIED;
  copy.dstDevice = rows.destination;
  copy.dstPitch = std::max(rows.destination_pitch_bytes, rows.row_bytes);
  copy.WidthInBytes = rows.row_bytes;
  copy.Height = rows.row_count;
  return driver.cuMemcpy2DAsync(&copy, stream);
}

}  // namespace

// What the engine takes in one batch, and the driver's batch too, is of one route.
struct Copier::Route {
  enum class Kind { kToDevice, kToHost, kOther } kind = Kind::kOther;
  CUcontext context = nullptr;  // of the device memory
  int gpu = -1;
  bool may_batch = false;  // by the driver: it knows both ends, and which side each is on
  bool operator==(const Route&) const = default;

  Direction direction() const {
    return kind == Kind::kToDevice ? Direction::kHostToDevice : Direction::kDeviceToHost;
  }
};

Copier::Copier(std::unique_ptr<Backend> backend, const Options& options)
    : backend_(std::move(backend)),
      driver_(backend_->driver()),
      staging_bytes_(Stager::least_bytes(options)) {
  if (const Engine* engine = backend_->engine())
    least_bytes_ = std::min(engine->threshold_bytes(), staging_bytes_);
}

Error Copier::open(const Options& options, std::unique_ptr<Copier>& copier) {
  std::unique_ptr<Backend> backend;
  if (Error failed = open_backend(options, backend); !failed.ok()) return failed;
  copier.reset(new Copier(std::move(backend), options));  // owner: copier
  return Error::none();
}

Error Copier::prepare() {
  CUcontext context = nullptr;
  const Status status =
      driver_.check(driver_.cuCtxGetCurrent(&context), "asking for the current context");
  if (!status.ok()) return Error::from(status, BRAID_ERROR_CUDA);
  const Status primaries = backend_->add_context(nullptr);
  const Status current = context != nullptr ? backend_->add_context(context) : Status();
  return Error::from(current.ok() ? primaries : current, BRAID_ERROR_UNAVAILABLE);
}

void Copier::forget_context(CUcontext context) {
  if (Engine* engine = backend_->engine()) engine->forget_context(context);
}

Error Copier::copy(const CopyCall& order, Scratch& scratch, CallOutcome& call_outcome) {
  std::span<Copy> rest = scratch.copies;
  // As quick as the driver's own: nothing is looked up for one small copy.
  if (rest.size() == 1 && rest[0].size_bytes < least_bytes_)
    return copy_group(rest, {}, order, scratch, call_outcome);
  scratch.memory.clear();
  while (!rest.empty()) {
    const Memory destination = scratch.memory.find(driver_, rest[0].destination);
    const Memory source = scratch.memory.find(driver_, rest[0].source);
    const Route route = route_between(destination, source);
    // The blocks of a cache lie in one allocation at each end.
    const auto others = std::partition(rest.begin(), rest.end(), [&](const Copy& copy) {
      return (destination.holds(copy.destination) && source.holds(copy.source)) ||
             route_of(copy, scratch.memory) == route;
    });
    const auto count = static_cast<size_t>(others - rest.begin());
    if (Error failed = copy_group(rest.first(count), route, order, scratch, call_outcome);
        !failed.ok())
      return failed;
    rest = rest.subspan(count);
  }
  return Error::none();
}

Error Copier::copy_rows(const CopyCall& order, const Rows& rows, Scratch& scratch,
                        CallOutcome& call_outcome) {
  scratch.memory.clear();
  scratch.segments.clear();
  const Route route = route_of({rows.destination, rows.source, rows.row_bytes}, scratch.memory);
  const preload::Box box{.to = {rows.destination, rows.destination_pitch_bytes},
                         .from = {rows.source, rows.source_pitch_bytes},
                         .width_bytes = rows.row_bytes,
                         .height = rows.row_count};
  if (!preload::append_rows(box, route.direction(), scratch.segments)) scratch.segments.clear();
  return carry(
      order, route, scratch.segments, box.size_bytes(),
      [&](Verdict) { return copy_rows_natively(driver_, rows, order.stream); }, call_outcome);
}

Copier::Route Copier::route_of(const Copy& copy, MemoryMap& memory) const {
  const Memory destination = memory.find(driver_, copy.destination);
  return route_between(destination, memory.find(driver_, copy.source));
}

Copier::Route Copier::route_between(const Memory& destination, const Memory& source) {
  if (destination.is_device == source.is_device) return {};
  const Memory& device = destination.is_device ? destination : source;
  const Memory& host = destination.is_device ? source : destination;
  return {destination.is_device ? Route::Kind::kToDevice : Route::Kind::kToHost, device.context,
          device.gpu, host.is_known && !host.is_managed && !device.is_managed};
}

Error Copier::copy_group(Copies group, const Route& route, const CopyCall& order, Scratch& scratch,
                         CallOutcome& call_outcome) {
  const bool to_device = route.kind == Route::Kind::kToDevice;
  uint64_t size_bytes = 0;
  scratch.segments.clear();
  scratch.segments.reserve(group.size());
  for (const Copy& copy : group) {
    void* const host = reinterpret_cast<void*>(to_device ? copy.source : copy.destination);
    const uint64_t device = to_device ? copy.destination : copy.source;
    scratch.segments.push_back({host, device, copy.size_bytes});
    size_bytes += copy.size_bytes;
  }
  const auto native = [&](Verdict why) {
    const bool may_batch = route.may_batch && why != Verdict::kCapturing;
    return copy_natively(driver_, group, order.stream, may_batch, scratch.native);
  };
  const FirstCopies own_link(driver_, group, route.may_batch, order.stream, scratch.native);
  return carry(order, route, scratch.segments, size_bytes, native, call_outcome,
               order.spares_target ? &own_link : nullptr);
}

// `native(why)` makes the driver's copy. No segments: they are not for braid.
template <typename Native>
Error Copier::carry(const CopyCall& order, const Route& route, std::span<const Segment> segments,
                    uint64_t size_bytes, const Native& native, CallOutcome& call_outcome,
                    const multipath::OwnLink* own_link) {
  const uint64_t begin_ns = system_clock().now_ns();
  Batch batch{route.direction(), segments, order.stream, order.priority};
  batch.own_link = own_link;
  const bool is_linear = route.kind != Route::Kind::kOther && !segments.empty();
  Engine* engine = backend_->engine();
  Outcome outcome = is_linear ? Verdict::kNotReady : Verdict::kNotLinear;
  if (size_bytes < least_bytes_) outcome = Verdict::kBelowThreshold;
  std::optional<Staged> staged;
  if (is_linear && engine != nullptr) {
    outcome = offer(*engine, batch, order);
    // A context that is new since the engine opened: its first copy makes it known.
    if (outcome == Verdict::kForeignContext && add_context_of(order.stream, route))
      outcome = offer(*engine, batch, order);
    if (!is_carried(outcome)) staged = stage(*engine, batch, outcome, order);
    if (staged) outcome = staged->outcome;
    if (!order.is_forecast && engine->has_relay_requests()) backend_->open_relays();
  }
  const uint64_t cost_ns = system_clock().now_ns() - begin_ns;
  if (order.is_forecast) {
    add(outcome, size_bytes, call_outcome);
    return Error::none();
  }
  CUresult result = outcome.error;
  if (staged)
    result = staged->result;
  else if (!is_carried(outcome) && outcome != Verdict::kFailed)
    result = native(outcome);
  if (result != CUDA_SUCCESS) outcome.verdict = Verdict::kFailed;
  backend_->count(
      {order.entry_point, size_bytes, is_linear ? &batch : nullptr, route.gpu, outcome, cost_ns});
  if (result != CUDA_SUCCESS) return Error::from(driver_.check(result, "a copy"), BRAID_ERROR_CUDA);
  add(outcome, size_bytes, call_outcome);
  return Error::none();
}

// Not those of other GPUs: to load code there might wait for what their streams wait for.
bool Copier::add_context_of(CUstream stream, const Route& route) {
  CUcontext context = nullptr;
  return driver_.cuStreamGetCtx(stream, &context) == CUDA_SUCCESS && context != nullptr &&
         (route.context == nullptr || route.context == context) &&
         backend_->add_context(context).ok();
}

Outcome Copier::offer(Engine& engine, const Batch& batch, const CopyCall& order) const {
  return order.is_forecast ? engine.forecast(batch) : engine.submit(batch);
}

std::optional<Staged> Copier::stage(Engine& engine, const Batch& batch, Verdict declined,
                                    const CopyCall& order) const {
  if (!Stager::may_take(batch, declined) || batch.first().size_bytes < staging_bytes_)
    return std::nullopt;
  if (order.is_forecast)
    return declined == Verdict::kPageable ? std::optional<Staged>(Staged{}) : std::nullopt;
  return engine.stage(batch, false);
}

std::vector<multipath::CopyPath> Copier::paths_of(int gpu, Direction direction,
                                                  uint64_t size_bytes) {
  Engine* engine = backend_->engine();
  if (engine == nullptr) return {};
  return engine->paths_of(gpu, direction, size_bytes);
}

std::string Copier::statistics() {
  std::string line = backend_->statistics(kStatisticsWaitMs);
  if (!line.empty() && line.back() == '\n') line.pop_back();
  return line;
}

}  // namespace braid::library
