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

ScenarioBench::ScenarioBench(const cuda::Driver& driver, Scenario scenario, int target,
                             uint64_t max_bytes, uint64_t seed)
    : driver_(driver), scenario_(scenario), target_(target), max_bytes_(max_bytes), seed_(seed) {}

Result<std::unique_ptr<ScenarioBench>> ScenarioBench::open(const cuda::Driver& driver,
                                                           const Options& options,
                                                           Scenario scenario, int target,
                                                           uint64_t max_bytes, uint64_t seed) {
  const uint64_t room_bytes = scenario == Scenario::kBatch ? max_bytes * kSpread : max_bytes;
  std::unique_ptr<ScenarioBench> bench(
      new ScenarioBench(driver, scenario, target, room_bytes, seed));
  const Status status = bench->prepare(options);
  if (!status.ok()) return status;
  return bench;
}

Status ScenarioBench::prepare(const Options& options) {
  Status status = open_contexts();
  for (size_t gpu = 0; gpu < contexts_.size() && status.ok(); ++gpu)
    if (scenario_ == Scenario::kEveryGpu || static_cast<int>(gpu) == target_)
      status = open_gpu(contexts_[gpu]);
  if (!status.ok()) return status;
  status = driver_.check(driver_.cuCtxSetCurrent(gpus_.front()->context), "choosing the first GPU");
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

Status ScenarioBench::open_contexts() {
  int count = 0;
  Status status = driver_.check(driver_.cuDeviceGetCount(&count), "counting the GPUs");
  if (status.ok() && (target_ < 0 || target_ >= count))
    status = Status::error("there is no GPU " + std::to_string(target_),
                           "Name a target from 0 to " + std::to_string(count - 1));
  for (int gpu = 0; gpu < count && status.ok(); ++gpu) {
    CUdevice device = 0;
    CUcontext context = nullptr;
    status = driver_.check(driver_.cuDeviceGet(&device, gpu), "opening a GPU");
    if (status.ok())
      status = driver_.check(driver_.cuDevicePrimaryCtxRetain(&context, device), "opening a GPU");
    contexts_.push_back(context);
  }
  return status;
}

Status ScenarioBench::open_gpu(CUcontext context) {
  Status status;
  const size_t index = gpus_.size();
  gpus_.push_back(std::make_unique<Gpu>());
  Gpu& gpu = *gpus_.back();
  gpu.context = context;
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
  fill_pattern(gpu.data, max_bytes_, seed_of(index));
  return driver_.check(driver_.cuMemcpyHtoD(gpu.device + max_bytes_, gpu.data, max_bytes_),
                       "filling the GPU");
}

ScenarioBench::~ScenarioBench() {
  limit_.reset();
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
    std::memcpy(pageable_.data(), gpus_.front()->data, what.size_bytes);
  }
  for (int round = 0; round <= what.repeat; ++round) {  // the first one warms up
    for (const Side side : {Side::kNative, Side::kBraid}) {
      Status status = poison(what);
      if (status.ok() && what.is_warm) status = warm_up_->run(what.direction);
      if (!status.ok()) return status;
      std::string ignored;
      const auto reading = time_once(what, side, side == Side::kBraid ? record.verdict : ignored);
      if (!reading.ok()) return reading.status();
      Readings& readings = side == Side::kNative ? record.native : record.braid;
      if (round > 0) readings.values.push_back(reading.value());
      const auto right = verify(what);
      if (!right.ok()) return right.status();
      record.verified = record.verified && right.value();
    }
    if (round == 0 || !what.with_limit) continue;
    if (const Status status = measure_limit(what, record.limit); !status.ok()) return status;
  }
  return record;
}

// Of what goes both ways, both ways at once.
Status ScenarioBench::measure_limit(const ScenarioCase& what, Readings& limit) {
  if (limit_ == nullptr) {
    auto opened = Limit::open(driver_, contexts_);
    if (!opened.ok()) return opened.status();
    limit_ = std::move(opened).value();
  }
  const Flow flow = !goes_down(what) ? Flow::kToDevices
                    : !goes_up(what) ? Flow::kToHost
                                     : Flow::kBothWays;
  const auto reading = limit_->measure(flow);
  if (!reading.ok()) return reading.status();
  limit.values.push_back(reading.value());
  return {};
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

uint64_t ScenarioBench::bytes_of(const ScenarioCase& what) const {
  const uint64_t ways = what.scenario == Scenario::kBoth ? 2 : 1;
  return what.size_bytes * ways * gpus_.size();
}

Result<double> ScenarioBench::time_once(const ScenarioCase& what, Side side, std::string& verdict) {
  const CUstream main = gpus_.front()->streams[0];
  const auto before = std::chrono::steady_clock::now();
  Status status = driver_.check(driver_.cuEventRecord(begin_, main), "an event");
  if (status.ok()) status = start_all();
  if (status.ok()) status = enqueue(what, side, verdict);
  if (status.ok()) status = join_all();
  if (status.ok()) status = driver_.check(driver_.cuEventRecord(end_, main), "an event");
  if (status.ok()) status = driver_.check(driver_.cuStreamSynchronize(main), "the copies");
  const std::chrono::duration<double, std::micro> waited =
      std::chrono::steady_clock::now() - before;
  float elapsed_ms = 0;
  if (status.ok())
    status = driver_.check(driver_.cuEventElapsedTime(&elapsed_ms, begin_, end_), "timing");
  if (!status.ok()) return status;
  // Staging happens on the CPU, beside the streams.
  const double elapsed_us =
      what.scenario == Scenario::kPageable ? waited.count() : static_cast<double>(elapsed_ms) * 1e3;
  return static_cast<double>(bytes_of(what)) / (elapsed_us * 1e3);
}

// Every stream begins where the first one is.
Status ScenarioBench::start_all() {
  for (const auto& gpu : gpus_) {
    const cuda::ScopedContext scope(driver_, gpu->context);
    for (const CUstream stream : gpu->streams)
      if (const CUresult result = driver_.cuStreamWaitEvent(stream, begin_, 0);
          result != CUDA_SUCCESS)
        return driver_.check(result, "a start");
  }
  return {};
}

Status ScenarioBench::join_all() {
  const CUstream main = gpus_.front()->streams[0];
  for (const auto& gpu : gpus_)
    for (int i = 0; i < 2; ++i) {
      cuda::ScopedContext scope(driver_, gpu->context);
      CUresult result = driver_.cuEventRecord(gpu->ends[i], gpu->streams[i]);
      scope.leave();
      if (result == CUDA_SUCCESS) result = driver_.cuStreamWaitEvent(main, gpu->ends[i], 0);
      if (result != CUDA_SUCCESS) return driver_.check(result, "an end");
    }
  return {};
}

Status ScenarioBench::enqueue(const ScenarioCase& what, Side side, std::string& verdict) {
  if (what.scenario == Scenario::kBatch) return copy_batch(what, side, verdict);
  if (what.scenario == Scenario::kPageable) return copy_pageable(what, side, verdict);
  Status status;
  for (const auto& gpu : gpus_) {
    if (status.ok() && goes_up(what))
      status = copy(*gpu, Direction::kHostToDevice, what.size_bytes, side, verdict);
    if (status.ok() && goes_down(what))
      status = copy(*gpu, Direction::kDeviceToHost, what.size_bytes, side, verdict);
  }
  return status;
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
  const Gpu& gpu = *gpus_.front();
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
  const Gpu& gpu = *gpus_.front();
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
  const Gpu& gpu = *gpus_.front();
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
  std::vector<char> seen(goes_up(what) ? max_bytes_ : 0);
  for (size_t i = 0; i < gpus_.size(); ++i) {
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
  const Gpu& gpu = *gpus_.front();
  const bool up = what.direction == Direction::kHostToDevice;
  const auto segments = segments_.segments();
  return std::all_of(segments.begin(), segments.end(), [&](const Segment& segment) {
    const auto* host = static_cast<const char*>(segment.host);
    const uint64_t place = segment.device - (up ? gpu.lower() : gpu.device + max_bytes_);
    return up ? has_pattern(seen.data() + place, segment.size_bytes, seed_of(0),
                            static_cast<uint64_t>(host - gpu.data))
              : has_pattern(host, segment.size_bytes, seed_of(0), place);
  });
}

}  // namespace braid::tools
