#include "bench/kv/segment_times.h"

#include <algorithm>

namespace braid::bench {
namespace {

// The first copy keeps the stream busy until all the others are enqueued.
constexpr uint64_t kFirstBytes = 128 << 20;
constexpr uint64_t kOthersBytes = 256 << 20;
constexpr uint32_t kCopiesMax = 256;

}  // namespace

SegmentTimes::SegmentTimes(const Gpu& gpu) : gpu_(gpu), memory_(gpu, kFirstBytes + kOthersBytes) {
  auto host = kv::HostPool::open(gpu.driver, kFirstBytes + kOthersBytes);
  must(gpu.driver, host.ok() ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY, "pinned memory");
  host_ = std::move(host).value();
  must(gpu.driver, gpu.driver.cuStreamCreate(&stream_, CU_STREAM_NON_BLOCKING), "a stream");
}

SegmentTimes::~SegmentTimes() { gpu_.driver.cuStreamDestroy(stream_); }

SegmentTimes::Times SegmentTimes::of(uint64_t size_bytes, bool is_down) {
  const auto copies =
      static_cast<uint32_t>(std::clamp<uint64_t>(kOthersBytes / size_bytes, 1, kCopiesMax));
  double call_us = 0;
  const double first_us = run_us(size_bytes, 0, is_down, nullptr);
  const double all_us = run_us(size_bytes, copies, is_down, &call_us);
  return {call_us / copies, std::max(all_us - first_us, 0.0) / copies};
}

/// The first copy and `copies` others, until the last byte has landed.
double SegmentTimes::run_us(uint64_t size_bytes, uint32_t copies, bool is_down, double* call_us) {
  const cuda::Driver& driver = gpu_.driver;
  const auto copy = [&](uint64_t offset, uint64_t bytes) {
    std::byte* host = host_->data() + offset;
    must(driver,
         is_down ? driver.cuMemcpyDtoHAsync(host, memory_.at(offset), bytes, stream_)
                 : driver.cuMemcpyHtoDAsync(memory_.at(offset), host, bytes, stream_),
         "a copy");
  };
  const uint64_t begin_ns = driver.clock->now_ns();
  copy(0, kFirstBytes);
  const uint64_t call_ns = system_clock().now_ns();
  for (uint64_t i = 0; i < copies; ++i) copy(kFirstBytes + i * size_bytes, size_bytes);
  if (call_us != nullptr) *call_us = static_cast<double>(system_clock().now_ns() - call_ns) / 1e3;
  must(driver, driver.cuStreamSynchronize(stream_), "waiting for copies");
  return static_cast<double>(driver.clock->now_ns() - begin_ns) / 1e3;
}

}  // namespace braid::bench
