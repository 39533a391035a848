#include "tools/limit.h"

#include <algorithm>

#include "base/try.h"
#include "cuda/scoped_context.h"
#include "multipath/native_copy.h"

namespace braid::tools {
namespace {

using multipath::Direction;

// Of each GPU and direction, copied so often in a row: five milliseconds of a PCIe 5.0 link, so
// that the start, some ten microseconds, is a small part.
constexpr size_t kPartBytes = size_t{64} << 20;
constexpr int kRounds = 4;

bool takes_part(Flow flow, Direction direction) {
  return flow == Flow::kBothWays ||
         (flow == Flow::kToDevices) == (direction == Direction::kHostToDevice);
}

}  // namespace

Result<std::unique_ptr<Limit>> Limit::open(const cuda::Driver& driver,
                                           std::vector<CUcontext> contexts) {
  std::unique_ptr<Limit> limit(new Limit(driver, std::move(contexts)));
  const cuda::ScopedContext scope(driver, limit->contexts_.front());
  limit->main_ = limit->objects_.stream();
  limit->begin_ = limit->objects_.event();
  limit->end_ = limit->objects_.event();
  BRAID_TRY(limit->objects_.status());
  return limit;
}

Status Limit::open_lanes(Direction direction) {
  for (const CUcontext context : contexts_) {
    const cuda::ScopedContext scope(driver_, context);
    lanes_.push_back({context,
                      {direction, objects_.pinned(kPartBytes), objects_.memory(kPartBytes),
                       kPartBytes, objects_.stream()},
                      objects_.event(CU_EVENT_DISABLE_TIMING)});
  }
  return objects_.status();
}

// From the beginning on, in a stream of its own; all ends are waited for.
CUresult Limit::enqueue(const Lane& lane) {
  cuda::ScopedContext scope(driver_, lane.context);
  CUresult result = driver_.cuStreamWaitEvent(lane.part.stream, begin_, 0);
  for (int round = 0; round < kRounds && result == CUDA_SUCCESS; ++round)
    result = copy_natively(driver_, lane.part);
  if (result == CUDA_SUCCESS) result = driver_.cuEventRecord(lane.end, lane.part.stream);
  scope.leave();
  return result == CUDA_SUCCESS ? driver_.cuStreamWaitEvent(main_, lane.end, 0) : result;
}

Result<double> Limit::measure(Flow flow) {
  const size_t known = lanes_.size();
  for (const Direction direction : {Direction::kHostToDevice, Direction::kDeviceToHost}) {
    const auto goes_so = [&](const Lane& lane) { return lane.part.direction == direction; };
    if (takes_part(flow, direction) && std::none_of(lanes_.begin(), lanes_.end(), goes_so))
      BRAID_TRY(open_lanes(direction));
  }
  if (lanes_.size() > known) BRAID_TRY(measure_once(flow).status());
  return measure_once(flow);
}

Result<double> Limit::measure_once(Flow flow) {
  const cuda::ScopedContext scope(driver_, contexts_.front());
  CUresult result = driver_.cuEventRecord(begin_, main_);
  const auto keep = [&result](CUresult next) { result = result == CUDA_SUCCESS ? next : result; };
  uint64_t bytes = 0;
  for (const Lane& lane : lanes_) {
    if (!takes_part(flow, lane.part.direction)) continue;
    keep(enqueue(lane));
    bytes += kPartBytes * kRounds;
  }
  keep(driver_.cuEventRecord(end_, main_));
  keep(driver_.cuStreamSynchronize(main_));
  float elapsed_ms = 0;
  keep(driver_.cuEventElapsedTime(&elapsed_ms, begin_, end_));
  BRAID_TRY(driver_.check(result, "measuring the limit"));
  return static_cast<double>(bytes) / (static_cast<double>(elapsed_ms) * 1e6);
}

}  // namespace braid::tools
