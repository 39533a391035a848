#include "tools/limit.h"

#include <algorithm>

#include "cuda/scoped_context.h"

namespace braid::tools {
namespace {

// Of each GPU and direction, copied so often in a row: five milliseconds of a PCIe 5.0 link, so
// that the start, some ten microseconds, is a small part.
constexpr size_t kPartBytes = size_t{64} << 20;
constexpr int kRounds = 4;

bool takes_part(Flow flow, bool goes_up) {
  return flow == Flow::kBothWays || (flow == Flow::kToDevices) == goes_up;
}

}  // namespace

Result<std::unique_ptr<Limit>> Limit::open(const cuda::Driver& driver,
                                           std::vector<CUcontext> contexts) {
  std::unique_ptr<Limit> limit(new Limit(driver, std::move(contexts)));
  const Status status = limit->prepare();
  if (!status.ok()) return status;
  return limit;
}

Status Limit::prepare() {
  const cuda::ScopedContext scope(driver_, contexts_.front());
  Status status = driver_.check(driver_.cuStreamCreate(&main_, CU_STREAM_NON_BLOCKING), "a stream");
  for (CUevent* event : {&begin_, &end_})
    if (status.ok()) status = driver_.check(driver_.cuEventCreate(event, 0), "an event");
  return status;
}

bool Limit::has_lanes(bool goes_up) const {
  return std::any_of(lanes_.begin(), lanes_.end(),
                     [goes_up](const Lane& lane) { return lane.goes_up == goes_up; });
}

Status Limit::open_lanes(bool goes_up) {
  Status status;
  for (const CUcontext context : contexts_)
    if (status.ok()) status = open_lane(context, goes_up);
  return status;
}

Status Limit::open_lane(CUcontext context, bool goes_up) {
  const cuda::ScopedContext scope(driver_, context);
  lanes_.push_back({.context = context, .goes_up = goes_up});
  Lane& lane = lanes_.back();
  Status status = driver_.check(driver_.cuMemAlloc(&lane.device, kPartBytes),
                                "allocating on a GPU for the limit");
  if (status.ok())
    status = driver_.check(driver_.cuMemHostAlloc(&lane.host, kPartBytes, CU_MEMHOSTALLOC_PORTABLE),
                           "pinning memory for the limit");
  if (status.ok())
    status =
        driver_.check(driver_.cuStreamCreate(&lane.stream, CU_STREAM_NON_BLOCKING), "a stream");
  if (status.ok())
    status = driver_.check(driver_.cuEventCreate(&lane.end, CU_EVENT_DISABLE_TIMING), "an event");
  return status;
}

Limit::~Limit() {
  for (const Lane& lane : lanes_) {
    const cuda::ScopedContext scope(driver_, lane.context);
    if (lane.stream != nullptr) driver_.cuStreamDestroy(lane.stream);
    if (lane.end != nullptr) driver_.cuEventDestroy(lane.end);
    if (lane.host != nullptr) driver_.cuMemFreeHost(lane.host);
    if (lane.device != 0) driver_.cuMemFree(lane.device);
  }
  for (const CUevent event : {begin_, end_})
    if (event != nullptr) driver_.cuEventDestroy(event);
  if (main_ != nullptr) driver_.cuStreamDestroy(main_);
}

// From the beginning on, in a stream of its own; all ends are waited for.
CUresult Limit::enqueue(const Lane& lane) {
  cuda::ScopedContext scope(driver_, lane.context);
  CUresult result = driver_.cuStreamWaitEvent(lane.stream, begin_, 0);
  for (int round = 0; round < kRounds && result == CUDA_SUCCESS; ++round)
    result = lane.goes_up
                 ? driver_.cuMemcpyHtoDAsync(lane.device, lane.host, kPartBytes, lane.stream)
                 : driver_.cuMemcpyDtoHAsync(lane.host, lane.device, kPartBytes, lane.stream);
  if (result == CUDA_SUCCESS) result = driver_.cuEventRecord(lane.end, lane.stream);
  scope.leave();
  return result == CUDA_SUCCESS ? driver_.cuStreamWaitEvent(main_, lane.end, 0) : result;
}

Result<double> Limit::measure(Flow flow) {
  bool is_new = false;
  for (const bool goes_up : {true, false}) {
    if (!takes_part(flow, goes_up) || has_lanes(goes_up)) continue;
    if (const Status status = open_lanes(goes_up); !status.ok()) return status;
    is_new = true;
  }
  if (is_new)
    if (const auto warm_up = measure_once(flow); !warm_up.ok()) return warm_up;
  return measure_once(flow);
}

Result<double> Limit::measure_once(Flow flow) {
  const cuda::ScopedContext scope(driver_, contexts_.front());
  CUresult result = driver_.cuEventRecord(begin_, main_);
  const auto keep = [&result](CUresult next) { result = result == CUDA_SUCCESS ? next : result; };
  uint64_t bytes = 0;
  for (const Lane& lane : lanes_) {
    if (!takes_part(flow, lane.goes_up)) continue;
    keep(enqueue(lane));
    bytes += kPartBytes * kRounds;
  }
  keep(driver_.cuEventRecord(end_, main_));
  keep(driver_.cuStreamSynchronize(main_));
  float elapsed_ms = 0;
  keep(driver_.cuEventElapsedTime(&elapsed_ms, begin_, end_));
  const Status status = driver_.check(result, "measuring the limit");
  if (!status.ok()) return status;
  return static_cast<double>(bytes) / (static_cast<double>(elapsed_ms) * 1e6);
}

}  // namespace braid::tools
