#include "library/copier.h"

#include <algorithm>

namespace braid::library {

using multipath::Batch;
using multipath::Direction;
using multipath::Engine;
using multipath::Outcome;
using multipath::Verdict;

namespace {

// Statistics are asked for when copies have just ended, and their last blocks may still be leaving.
constexpr int kStatisticsWaitMs = 100;

}  // namespace

// What the engine takes in one batch, and the driver's batch too, is of one route.
struct Copier::Route {
  enum class Kind { kToDevice, kToHost, kOther } kind = Kind::kOther;
  CUcontext context = nullptr;  // of the device memory
  int gpu = -1;
  bool may_batch = false;  // by the driver: it knows both ends, and which side each is on
  bool operator==(const Route&) const = default;
};

Error Copier::open(const Options& options, std::unique_ptr<Copier>& copier) {
  auto driver = cuda::open_driver();
  if (!driver.ok()) return Error::from(driver.status(), BRAID_ERROR_UNAVAILABLE);
  std::unique_ptr<Copier> made(new Copier(std::move(driver).value(), options));
  const Status started = made->driver_.check(made->driver_.cuInit(0), "starting CUDA");
  if (!started.ok()) return Error::from(started, BRAID_ERROR_UNAVAILABLE);
  auto engine = Engine::open(made->driver_, options);
  if (!engine.ok()) return Error::from(engine.status(), BRAID_ERROR_UNAVAILABLE);
  made->engine_ = std::move(engine).value();
  made->engine_->grant_default_pools();
  copier = std::move(made);
  return Error::none();
}

Error Copier::prepare() {
  CUcontext context = nullptr;
  const Status status =
      driver_.check(driver_.cuCtxGetCurrent(&context), "asking for the current context");
  if (!status.ok()) return Error::from(status, BRAID_ERROR_CUDA);
  return Error::from(engine_->add_context(context), BRAID_ERROR_UNAVAILABLE);
}

Error Copier::copy(const Order& order, Scratch& scratch, Tally& tally) {
  std::span<Copy> rest = scratch.copies;
  // As quick as the driver's own: nothing is looked up for one small copy.
  if (rest.size() == 1 && rest[0].size_bytes < threshold_bytes_)
    return copy_native(rest, false, Verdict::kBelowThreshold, order, scratch, tally);
  scratch.memory.clear();
  while (!rest.empty()) {
    const Route route = route_of(rest[0], scratch.memory);
    const auto others = std::partition(rest.begin(), rest.end(), [&](const Copy& copy) {
      return route_of(copy, scratch.memory) == route;
    });
    const auto count = static_cast<size_t>(others - rest.begin());
    if (Error failed = copy_group(rest.first(count), route, order, scratch, tally); !failed.ok())
      return failed;
    rest = rest.subspan(count);
  }
  return Error::none();
}

Copier::Route Copier::route_of(const Copy& copy, MemoryMap& memory) const {
  const Memory destination = memory.find(driver_, copy.destination);
  const Memory source = memory.find(driver_, copy.source);
  if (destination.is_device == source.is_device) return {};
  const Memory& device = destination.is_device ? destination : source;
  const Memory& host = destination.is_device ? source : destination;
  return {destination.is_device ? Route::Kind::kToDevice : Route::Kind::kToHost, device.context,
          device.gpu, host.is_known && !host.is_managed && !device.is_managed};
}

Error Copier::copy_group(Copies group, const Route& route, const Order& order, Scratch& scratch,
                         Tally& tally) {
  Outcome outcome = Verdict::kNotLinear;
  if (route.kind != Route::Kind::kOther) outcome = submit(group, route, order, scratch);
  // A context that is new since the engine opened: its first copy makes it known.
  if (outcome == Verdict::kForeignContext && engine_->add_context(route.context).ok())
    outcome = submit(group, route, order, scratch);
  if (outcome == Verdict::kFailed)
    return Error::from(driver_.check(outcome.error, "a copy that was under way"), BRAID_ERROR_CUDA);
  if (outcome != Verdict::kAccelerated) {
    const bool may_batch = route.may_batch && outcome != Verdict::kCapturing;
    return copy_native(group, may_batch, outcome, order, scratch, tally);
  }
  const uint64_t size_bytes = total_bytes(group);
  statistics_.add(order.entry_point, outcome, size_bytes);
  tally.accelerated_bytes += size_bytes;
  return Error::none();
}

Outcome Copier::submit(Copies group, const Route& route, const Order& order, Scratch& scratch) {
  const bool to_device = route.kind == Route::Kind::kToDevice;
  scratch.segments.clear();
  for (const Copy& copy : group)
    scratch.segments.push_back({reinterpret_cast<void*>(to_device ? copy.source : copy.destination),
                                to_device ? copy.destination : copy.source, copy.size_bytes});
  return engine_->submit(Batch{to_device ? Direction::kHostToDevice : Direction::kDeviceToHost,
                               scratch.segments, order.stream, order.priority});
}

Error Copier::copy_native(Copies group, bool may_batch, Verdict why, const Order& order,
                          Scratch& scratch, Tally& tally) {
  const CUresult answer = copy_natively(driver_, group, order.stream, may_batch, scratch.native);
  const Status status = driver_.check(answer, "the driver's copy");
  if (!status.ok()) return Error::from(status, BRAID_ERROR_CUDA);
  const uint64_t size_bytes = total_bytes(group);
  statistics_.add(order.entry_point, why, size_bytes);
  if (tally.native_bytes == 0) tally.reason = why;
  tally.native_bytes += size_bytes;
  return Error::none();
}

std::string Copier::statistics() { return statistics_.render(*engine_, kStatisticsWaitMs); }

}  // namespace braid::library
