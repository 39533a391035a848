#include "tools/warm_up.h"

#include <chrono>

#include "cuda/scoped_context.h"

namespace braid::tools {
namespace {

using multipath::Direction;
using multipath::Verdict;

constexpr size_t kSizeBytes = size_t{64} << 20;
constexpr std::chrono::milliseconds kDuration{20};

}  // namespace

Result<std::unique_ptr<WarmUp>> WarmUp::open(const cuda::Driver& driver,
                                             multipath::Engine& engine) {
  std::unique_ptr<WarmUp> warm_up(new WarmUp(driver, engine));
  const Status status = warm_up->allocate();
  if (!status.ok()) return status;
  return warm_up;
}

Status WarmUp::allocate() {
  Status status = driver_.check(driver_.cuCtxGetCurrent(&context_), "asking for the context");
  if (status.ok())
    status = driver_.check(driver_.cuStreamCreate(&stream_, CU_STREAM_NON_BLOCKING), "a stream");
  if (status.ok())
    status = driver_.check(driver_.cuMemAlloc(&device_, kSizeBytes), "allocating on the GPU");
  if (status.ok())
    status = driver_.check(driver_.cuMemHostAlloc(&host_, kSizeBytes, CU_MEMHOSTALLOC_PORTABLE),
                           "pinning memory");
  return status;
}

WarmUp::~WarmUp() {
  const cuda::ScopedContext scope(driver_, context_);
  if (stream_ != nullptr) driver_.cuStreamDestroy(stream_);
  if (device_ != 0) driver_.cuMemFree(device_);
  if (host_ != nullptr) driver_.cuMemFreeHost(host_);
}

Status WarmUp::run(Direction direction) {
  const cuda::ScopedContext scope(driver_, context_);
  const auto end = std::chrono::steady_clock::now() + kDuration;
  Status status;
  while (status.ok() && std::chrono::steady_clock::now() < end) status = copy(direction);
  return status;
}

Status WarmUp::copy(Direction direction) {
  Status status;
  if (engine_.submit({direction, host_, device_, kSizeBytes, stream_}) != Verdict::kAccelerated)
    status = driver_.check(direction == Direction::kHostToDevice
                               ? driver_.cuMemcpyHtoDAsync(device_, host_, kSizeBytes, stream_)
                               : driver_.cuMemcpyDtoHAsync(host_, device_, kSizeBytes, stream_),
                           "a warming copy");
  return status.ok() ? driver_.check(driver_.cuStreamSynchronize(stream_), "a warming copy")
                     : status;
}

}  // namespace braid::tools
