#include "paper/static_split.h"

#include <algorithm>

#include "cuda/scoped_context.h"

namespace braid::paper {
namespace {

// As large as one copy of the background traffic: a copy engine does one whole copy after another,
// so that the two halve the link.
constexpr uint64_t kChunkBytes = 4 << 20;

}  // namespace

StaticSplit::StaticSplit(const cuda::Driver& driver, CUcontext relay, Shares shares)
    : driver_(driver), relay_(relay), shares_(shares) {
  MUST(driver_, cuEventCreate(&fork_, CU_EVENT_DISABLE_TIMING));
  const cuda::ScopedContext scope(driver_, relay_);
  for (Buffer& buffer : buffers_) {
    MUST(driver_, cuMemAlloc(&buffer.at, kChunkBytes));
    MUST(driver_, cuEventCreate(&buffer.full, CU_EVENT_DISABLE_TIMING));
    MUST(driver_, cuEventCreate(&buffer.empty, CU_EVENT_DISABLE_TIMING));
  }
  for (CUstream* stream : {&pcie_, &nvlink_})
    MUST(driver_, cuStreamCreate(stream, CU_STREAM_NON_BLOCKING));
  MUST(driver_, cuEventCreate(&join_, CU_EVENT_DISABLE_TIMING));
}

StaticSplit::~StaticSplit() {
  driver_.cuEventDestroy(fork_);
  const cuda::ScopedContext scope(driver_, relay_);
  for (Buffer& buffer : buffers_) {
    driver_.cuMemFree(buffer.at);
    driver_.cuEventDestroy(buffer.full);
    driver_.cuEventDestroy(buffer.empty);
  }
  driver_.cuStreamDestroy(pcie_);
  driver_.cuStreamDestroy(nvlink_);
  driver_.cuEventDestroy(join_);
}

void StaticSplit::enqueue(const uint8_t* host, CUdeviceptr device, uint64_t size_bytes,
                          CUstream stream) {
  const uint64_t direct_bytes = size_bytes / (shares_.direct + shares_.relayed) * shares_.direct;
  MUST(driver_, cuEventRecord(fork_, stream));
  MUST(driver_, cuMemcpyHtoDAsync(device, host, direct_bytes, stream));
  relay(host + direct_bytes, device + direct_bytes, size_bytes - direct_bytes);
  MUST(driver_, cuStreamWaitEvent(stream, join_, 0));
}

void StaticSplit::relay(const uint8_t* host, CUdeviceptr device, uint64_t size_bytes) {
  const cuda::ScopedContext scope(driver_, relay_);
  MUST(driver_, cuStreamWaitEvent(pcie_, fork_, 0));
  size_t chunk = 0;
  for (uint64_t at = 0; at < size_bytes; at += kChunkBytes, ++chunk) {
    const Buffer& buffer = buffers_[chunk % kBuffers];
    const uint64_t bytes = std::min(kChunkBytes, size_bytes - at);
    if (chunk >= kBuffers) MUST(driver_, cuStreamWaitEvent(pcie_, buffer.empty, 0));
    MUST(driver_, cuMemcpyHtoDAsync(buffer.at, host + at, bytes, pcie_));
    MUST(driver_, cuEventRecord(buffer.full, pcie_));
    MUST(driver_, cuStreamWaitEvent(nvlink_, buffer.full, 0));
    MUST(driver_, cuMemcpyDtoDAsync(device + at, buffer.at, bytes, nvlink_));
    MUST(driver_, cuEventRecord(buffer.empty, nvlink_));
  }
  MUST(driver_, cuEventRecord(join_, nvlink_));
}

}  // namespace braid::paper
