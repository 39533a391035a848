#include "tools/scenarios.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <numeric>
#include <optional>
#include <random>

#include "cuda/scoped_context.h"
#include "tools/pattern.h"

namespace braid::tools {
namespace {

using multipath::Direction;
using multipath::Segment;
using multipath::Verdict;

// Segments lie in places of twice their size, so that no two touch.
constexpr uint64_t kSpread = 2;

bool goes_up(const ScenarioCase& what) {
  return what.scenario == Scenario::kBoth || what.direction == Direction::kHostToDevice;
}

bool goes_down(const ScenarioCase& what) {
  return what.scenario == Scenario::kBoth || what.direction == Direction::kDeviceToHost;
}

}  // namespace

Result<Scenario> parse_scenario(const std::string& text) {
  if (text == "batch") return Scenario::kBatch;
  if (text == "both") return Scenario::kBoth;
  if (text == "every-gpu") return Scenario::kEveryGpu;
  if (text == "pageable") return Scenario::kPageable;
  return Status::error("'" + text + "' is not a scenario",
                       "Write batch, both, every-gpu or pageable");
}

// What goes up comes from `data` to the first half of `device`; what goes down comes from the
// second half to `landing`, so that both can be under way at once.
struct ScenarioBench::Gpu {
  CUcontext context = nullptr;
  CUstream streams[2] = {};  // by direction
  CUevent ends[2] = {};
  CUdeviceptr device = 0;
  char* data = nullptr;
  char* landing = nullptr;

  CUdeviceptr lower() const { return device; }
};

ScenarioBench::ScenarioBench(const cuda::Driver& driver, int target, uint64_t max_bytes,
                             uint64_t seed)
    : driver_(driver), target_(target), max_bytes_(max_bytes), seed_(seed) {}

Result<std::unique_ptr<ScenarioBench>> ScenarioBench::open(const cuda::Driver& driver,
                                                           const Options& options, int target,
                                                           uint64_t max_bytes, uint64_t seed) {
  std::unique_ptr<ScenarioBench> bench(
      new ScenarioBench(driver, target, max_bytes * kSpread, seed));
  const Status status = bench->prepare(options);
  if (!status.ok()) return status;
  return bench;
}

Status ScenarioBench::prepare(const Options& options) {
  int count = 0;
  Status status = driver_.check(driver_.cuDeviceGetCount(&count), "counting the GPUs");
  if (status.ok() && (target_ < 0 || target_ >= count))
    status = Status::error("there is no GPU " + std::to_string(target_),
                           "Name a target from 0 to " + std::to_string(count - 1));
  for (int gpu = 0; gpu < count && status.ok(); ++gpu) status = open_gpu(gpu);
  if (!status.ok()) return status;
  Gpu& target = *gpus_[static_cast<size_t>(target_)];
  status = driver_.check(driver_.cuCtxSetCurrent(target.context), "choosing the target");
  if (status.ok()) status = driver_.check(driver_.cuEventCreate(&begin_, 0), "an event");
  if (status.ok()) status = driver_.check(driver_.cuEventCreate(&end_, 0), "an event");
  if (!status.ok()) return status;
  auto engine = multipath::Engine::open(driver_, options);
  if (!engine.ok()) return engine.status();
  engine_ = std::move(engine).value();
  auto warm_up = WarmUp::open(driver_, *engine_);
  if (!warm_up.ok()) return warm_up.status();
  warm_up_ = std::move(warm_up).value();
  return {};
}

Status ScenarioBench::open_gpu(int ordinal) {
  gpus_.push_back(std::make_unique<Gpu>());
  Gpu& gpu = *gpus_.back();
  CUdevice device = 0;
  Status status = driver_.check(driver_.cuDeviceGet(&device, ordinal), "opening a GPU");
  if (status.ok())
    status = driver_.check(driver_.cuDevicePrimaryCtxRetain(&gpu.context, device), "opening a GPU");
  if (!status.ok()) return status;
  const cuda::ScopedContext scope(driver_, gpu.context);
  const auto keep = [&status, this](CUresult result, const char* what) {
    if (status.ok()) status = driver_.check(result, what);
  };
  for (int i = 0; i < 2; ++i) {
    keep(driver_.cuStreamCreate(&gpu.streams[i], CU_STREAM_NON_BLOCKING), "a stream");
    keep(driver_.cuEventCreate(&gpu.ends[i], CU_EVENT_DISABLE_TIMING), "an event");
  }
  keep(driver_.cuMemAlloc(&gpu.device, 2 * max_bytes_), "allocating on the GPU");
  for (char** buffer : {&gpu.data, &gpu.landing}) {
    void* memory = nullptr;
    keep(driver_.cuMemHostAlloc(&memory, max_bytes_, CU_MEMHOSTALLOC_PORTABLE), "pinning memory");
    *buffer = static_cast<char*>(memory);
  }
  if (!status.ok()) return status;
  fill_pattern(gpu.data, max_bytes_, seed_of(static_cast<size_t>(ordinal)));
  return driver_.check(driver_.cuMemcpyHtoD(gpu.device + max_bytes_, gpu.data, max_bytes_),
                       "filling the GPU");
}

ScenarioBench::~ScenarioBench() {
  warm_up_.reset();
  engine_.reset();
  for (const auto& gpu : gpus_) {
    const cuda::ScopedContext scope(driver_, gpu->context);
    for (int i = 0; i < 2; ++i) {
      if (gpu->streams[i] != nullptr) driver_.cuStreamDestroy(gpu->streams[i]);
      if (gpu->ends[i] != nullptr) driver_.cuEventDestroy(gpu->ends[i]);
    }
    if (gpu->device != 0) driver_.cuMemFree(gpu->device);
    for (char* buffer : {gpu->data, gpu->landing})
      if (buffer != nullptr) driver_.cuMemFreeHost(buffer);
  }
}

Result<ScenarioRecord> ScenarioBench::run(const ScenarioCase& what) {
  ScenarioRecord record;
  if (what.scenario == Scenario::kBatch) scatter(what);
  if (what.scenario == Scenario::kPageable) {
    pageable_.resize(what.size_bytes);
    std::memcpy(pageable_.data(), gpus_[static_cast<size_t>(target_)]->data, what.size_bytes);
  }
  for (int round = 0; round <= what.repeat; ++round)  // the first one warms up
    for (const Side side : {Side::kNative, Side::kBraid, Side::kLimit}) {
      Status status = side == Side::kLimit ? Status() : poison(what);
      if (status.ok() && what.is_warm) status = warm_up_->run(what.direction);
      if (!status.ok()) return status;
      std::string ignored;
      const auto reading = time_once(what, side, side == Side::kBraid ? record.verdict : ignored);
      if (!reading.ok()) return reading.status();
      Readings& readings = side == Side::kNative  ? record.native
                           : side == Side::kBraid ? record.braid
                                                  : record.limit;
      if (round > 0) readings.values.push_back(reading.value());
      if (side == Side::kLimit) continue;
      const auto right = verify(what);
      if (!right.ok()) return right.status();
      record.verified = record.verified && right.value();
    }
  return record;
}

Status ScenarioBench::poison(const ScenarioCase& what) {
  if (what.scenario == Scenario::kPageable && goes_down(what))
    std::fill(pageable_.begin(), pageable_.end(), static_cast<char>(kPoison));
  for (const auto& gpu : gpus_) {
    const cuda::ScopedContext scope(driver_, gpu->context);
    CUresult result = CUDA_SUCCESS;
    if (goes_up(what)) result = driver_.cuMemsetD8(gpu->lower(), kPoison, max_bytes_);
    // By the GPU: lines that the CPU has written would slow the copy's writes (tools/measure.cpp).
    if (result == CUDA_SUCCESS && goes_down(what))
      result = driver_.cuMemcpyDtoH(gpu->landing, gpu->lower(), max_bytes_);
    if (result == CUDA_SUCCESS) result = driver_.cuCtxSynchronize();
    const Status status = driver_.check(result, "clearing the destinations");
    if (!status.ok()) return status;
  }
  return {};
}

uint64_t ScenarioBench::bytes_of(const ScenarioCase& what, Side side) const {
  uint64_t bytes = what.size_bytes;
  if (what.scenario == Scenario::kBoth) bytes *= 2;
  if (side == Side::kLimit || what.scenario == Scenario::kEveryGpu) bytes *= gpus_.size();
  return bytes;
}

Result<double> ScenarioBench::time_once(const ScenarioCase& what, Side side, std::string& verdict) {
  const CUstream main = gpus_[static_cast<size_t>(target_)]->streams[0];
  const auto before = std::chrono::steady_clock::now();
  Status status = driver_.check(driver_.cuEventRecord(begin_, main), "an event");
  if (status.ok()) status = start_all(what, side);
  if (status.ok()) status = enqueue(what, side, verdict);
  if (status.ok()) status = join_all(what, side);
  if (status.ok()) status = driver_.check(driver_.cuEventRecord(end_, main), "an event");
  if (status.ok()) status = driver_.check(driver_.cuStreamSynchronize(main), "the copies");
  const std::chrono::duration<double, std::micro> waited =
      std::chrono::steady_clock::now() - before;
  float elapsed_ms = 0;
  if (status.ok())
    status = driver_.check(driver_.cuEventElapsedTime(&elapsed_ms, begin_, end_), "timing");
  if (!status.ok()) return status;
  // Staging happens on the CPU, beside the streams.
  const bool by_wall = what.scenario == Scenario::kPageable && side != Side::kLimit;
  const double elapsed_us = by_wall ? waited.count() : static_cast<double>(elapsed_ms) * 1e3;
  return static_cast<double>(bytes_of(what, side)) / (elapsed_us * 1e3);
}

bool ScenarioBench::is_everywhere(const ScenarioCase& what, Side side) {
  return side == Side::kLimit || what.scenario == Scenario::kEveryGpu;
}

// Whether the GPU has streams that copies are put in: making others wait takes time as well.
bool ScenarioBench::takes_part(const ScenarioCase& what, Side side, const Gpu& gpu) const {
  return is_everywhere(what, side) || &gpu == gpus_[static_cast<size_t>(target_)].get();
}

// Every stream begins where the target's first one is.
Status ScenarioBench::start_all(const ScenarioCase& what, Side side) {
  for (const auto& gpu : gpus_) {
    if (!takes_part(what, side, *gpu)) continue;
    const cuda::ScopedContext scope(driver_, gpu->context);
    for (const CUstream stream : gpu->streams)
      if (const CUresult result = driver_.cuStreamWaitEvent(stream, begin_, 0);
          result != CUDA_SUCCESS)
        return driver_.check(result, "a start");
  }
  return {};
}

Status ScenarioBench::join_all(const ScenarioCase& what, Side side) {
  const CUstream main = gpus_[static_cast<size_t>(target_)]->streams[0];
  for (const auto& gpu : gpus_)
    for (int i = 0; i < 2 && takes_part(what, side, *gpu); ++i) {
      cuda::ScopedContext scope(driver_, gpu->context);
      CUresult result = driver_.cuEventRecord(gpu->ends[i], gpu->streams[i]);
      scope.leave();
      if (result == CUDA_SUCCESS) result = driver_.cuStreamWaitEvent(main, gpu->ends[i], 0);
      if (result != CUDA_SUCCESS) return driver_.check(result, "an end");
    }
  return {};
}

Status ScenarioBench::enqueue(const ScenarioCase& what, Side side, std::string& verdict) {
  if (!is_everywhere(what, side) && what.scenario == Scenario::kBatch)
    return copy_batch(what, side, verdict);
  if (!is_everywhere(what, side) && what.scenario == Scenario::kPageable)
    return copy_pageable(what, side, verdict);
  for (size_t i = 0; i < gpus_.size(); ++i) {
    if (!takes_part(what, side, *gpus_[i])) continue;
    Status status;
    if (goes_up(what))
      status = copy(*gpus_[i], Direction::kHostToDevice, what.size_bytes, side, verdict);
    if (status.ok() && goes_down(what))
      status = copy(*gpus_[i], Direction::kDeviceToHost, what.size_bytes, side, verdict);
    if (!status.ok()) return status;
  }
  return {};
}

Status ScenarioBench::copy(Gpu& gpu, Direction direction, uint64_t size_bytes, Side side,
                           std::string& verdict) {
  const cuda::ScopedContext scope(driver_, gpu.context);
  const bool up = direction == Direction::kHostToDevice;
  const CUstream stream = gpu.streams[static_cast<size_t>(direction)];
  const CUdeviceptr device = up ? gpu.lower() : gpu.device + max_bytes_;
  char* host = up ? gpu.data : gpu.landing;
  if (side == Side::kBraid) {
    const Verdict outcome = engine_->submit({direction, host, device, size_bytes, stream});
    verdict = multipath::verdict_name(outcome);
    if (outcome == Verdict::kAccelerated) return {};
  }
  return driver_.check(up ? driver_.cuMemcpyHtoDAsync(device, host, size_bytes, stream)
                          : driver_.cuMemcpyDtoHAsync(host, device, size_bytes, stream),
                       "a native copy");
}

// Random places of both ends, each used once.
void ScenarioBench::scatter(const ScenarioCase& what) {
  const Gpu& gpu = *gpus_[static_cast<size_t>(target_)];
  const bool up = what.direction == Direction::kHostToDevice;
  const uint64_t count = what.size_bytes / what.segment_bytes;
  std::mt19937_64 random(seed_);
  std::vector<uint64_t> host(count), device(count);
  std::iota(host.begin(), host.end(), 0);
  std::iota(device.begin(), device.end(), 0);
  std::shuffle(host.begin(), host.end(), random);
  std::shuffle(device.begin(), device.end(), random);
  const uint64_t stride = what.segment_bytes * kSpread;
  segments_ = SegmentList(what.direction);
  for (uint64_t i = 0; i < count; ++i) {
    char* at_host = (up ? gpu.data : gpu.landing) + host[i] * stride;
    const CUdeviceptr at_device = (up ? gpu.lower() : gpu.device + max_bytes_) + device[i] * stride;
    segments_.add({at_host, at_device, what.segment_bytes});
  }
}

Status ScenarioBench::copy_batch(const ScenarioCase& what, Side side, std::string& verdict) {
  const Gpu& gpu = *gpus_[static_cast<size_t>(target_)];
  const CUstream stream = gpu.streams[static_cast<size_t>(what.direction)];
  if (side == Side::kBraid) {
    const Verdict outcome =
        engine_->submit(multipath::Batch{what.direction, segments_.segments(), stream});
    verdict = multipath::verdict_name(outcome);
    if (outcome == Verdict::kAccelerated) return {};
  }
  return segments_.copy_natively(driver_, stream);
}

Status ScenarioBench::copy_pageable(const ScenarioCase& what, Side side, std::string& verdict) {
  const Gpu& gpu = *gpus_[static_cast<size_t>(target_)];
  const bool up = what.direction == Direction::kHostToDevice;
  const CUdeviceptr device = up ? gpu.lower() : gpu.device + max_bytes_;
  const CUstream stream = gpu.streams[static_cast<size_t>(what.direction)];
  CUresult result = CUDA_SUCCESS;
  std::optional<CUresult> staged;
  if (side == Side::kBraid)
    staged =
        engine_->stage({what.direction, pageable_.data(), device, what.size_bytes, stream}, true);
  if (side == Side::kBraid) verdict = staged ? "staged" : "native";
  if (staged)
    result = *staged;
  else
    result = up ? driver_.cuMemcpyHtoD(device, pageable_.data(), what.size_bytes)
                : driver_.cuMemcpyDtoH(pageable_.data(), device, what.size_bytes);
  return driver_.check(result, "a pageable copy");
}

// Without reading a source, which the CPU's caches would then hold when it is copied again.
Result<bool> ScenarioBench::verify(const ScenarioCase& what) {
  const bool is_everywhere = what.scenario == Scenario::kEveryGpu;
  std::vector<char> seen(goes_up(what) ? max_bytes_ : 0);
  for (size_t i = 0; i < gpus_.size(); ++i) {
    if (!is_everywhere && static_cast<int>(i) != target_) continue;
    const Gpu& gpu = *gpus_[i];
    const cuda::ScopedContext scope(driver_, gpu.context);
    if (goes_up(what)) {
      const Status status =
          driver_.check(driver_.cuMemcpyDtoH(seen.data(), gpu.lower(), max_bytes_), "reading back");
      if (!status.ok()) return status;
    }
    if (what.scenario == Scenario::kBatch) return has_segments(what, seen);
    if (goes_up(what) && !has_pattern(seen.data(), what.size_bytes, seed_of(i))) return false;
    const char* landed = what.scenario == Scenario::kPageable ? pageable_.data() : gpu.landing;
    if (goes_down(what) && !has_pattern(landed, what.size_bytes, seed_of(i))) return false;
  }
  return true;
}

bool ScenarioBench::has_segments(const ScenarioCase& what, const std::vector<char>& seen) const {
  const auto target = static_cast<size_t>(target_);
  const Gpu& gpu = *gpus_[target];
  const bool up = what.direction == Direction::kHostToDevice;
  const auto segments = segments_.segments();
  return std::all_of(segments.begin(), segments.end(), [&](const Segment& segment) {
    const auto* host = static_cast<const char*>(segment.host);
    const uint64_t place = segment.device - (up ? gpu.lower() : gpu.device + max_bytes_);
    return up ? has_pattern(seen.data() + place, segment.size_bytes, seed_of(target),
                            static_cast<uint64_t>(host - gpu.data))
              : has_pattern(host, segment.size_bytes, seed_of(target), place);
  });
}

}  // namespace braid::tools
