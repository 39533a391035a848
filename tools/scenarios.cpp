#include "tools/scenarios.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <numeric>
#include <random>

#include "base/try.h"
#include "cuda/scoped_context.h"
#include "multipath/native_copy.h"
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

ScenarioBench::ScenarioBench(const cuda::Driver& driver, Scenario scenario, int target,
                             uint64_t max_bytes, uint64_t seed)
    : Workbench(driver, target), scenario_(scenario), max_bytes_(max_bytes), seed_(seed) {}

char* ScenarioBench::host_end(const Gpu& gpu, Direction direction) {
  return direction == Direction::kHostToDevice ? gpu.data : gpu.landing;
}

CUdeviceptr ScenarioBench::device_end(const Gpu& gpu, Direction direction) const {
  return direction == Direction::kHostToDevice ? gpu.device : gpu.device + max_bytes_;
}

Result<std::unique_ptr<ScenarioBench>> ScenarioBench::open(const cuda::Driver& driver,
                                                           const Options& options,
                                                           Scenario scenario, int target,
                                                           uint64_t max_bytes, uint64_t seed) {
  const uint64_t room_bytes = scenario == Scenario::kBatch ? max_bytes * kSpread : max_bytes;
  std::unique_ptr<ScenarioBench> bench(
      new ScenarioBench(driver, scenario, target, room_bytes, seed));
  BRAID_TRY(bench->prepare(options));
  return bench;
}

Status ScenarioBench::prepare(const Options& options) {
  BRAID_TRY(open_gpus());
  for (size_t gpu = 0; gpu < contexts_.size(); ++gpu)
    if (scenario_ == Scenario::kEveryGpu || static_cast<int>(gpu) == target_)
      BRAID_TRY(open_gpu(contexts_[gpu]));
  BRAID_TRY(
      driver_.check(driver_.cuCtxSetCurrent(gpus_.front().context), "choosing the first GPU"));
  return open_engine(options);
}

Status ScenarioBench::open_gpu(CUcontext context) {
  const cuda::ScopedContext scope(driver_, context);
  const auto unused = CU_EVENT_DISABLE_TIMING;
  Gpu& gpu = gpus_.emplace_back(Gpu{context,
                                    {objects_.stream(), objects_.stream()},
                                    {objects_.event(unused), objects_.event(unused)},
                                    objects_.memory(2 * max_bytes_),
                                    objects_.pinned(max_bytes_),
                                    objects_.pinned(max_bytes_)});
  BRAID_TRY(objects_.status());
  fill_pattern(gpu.data, max_bytes_, seed_of(gpus_.size() - 1));
  return driver_.check(driver_.cuMemcpyHtoD(gpu.device + max_bytes_, gpu.data, max_bytes_),
                       "filling the GPU");
}

Result<Outcome> ScenarioBench::run(const ScenarioCase& what) {
  Outcome record;
  const Flow flow = !goes_down(what) ? Flow::kToDevices
                    : !goes_up(what) ? Flow::kToHost
                                     : Flow::kBothWays;
  if (what.scenario == Scenario::kBatch) scatter(what);
  if (what.scenario == Scenario::kPageable) {
    pageable_.resize(what.size_bytes);
    std::memcpy(pageable_.data(), gpus_.front().data, what.size_bytes);
  }
  for (int round = 0; round <= what.repeat; ++round) {  // the first one warms up
    for (const Side side : {Side::kNative, Side::kBraid}) {
      BRAID_TRY(poison(what));
      if (what.is_warm) BRAID_TRY(warm_up_->run(what.direction));
      std::string ignored;
      BRAID_LET(reading, time_once(what, side, side == Side::kBraid ? record.verdict : ignored));
      Readings& readings = side == Side::kNative ? record.native : record.braid;
      if (round > 0) readings.values.push_back(reading);
      BRAID_LET(right, verify(what));
      record.verified = record.verified && right;
    }
    if (round > 0 && what.with_limit) BRAID_TRY(measure_limit(flow, record.limit));
  }
  return record;
}

Status ScenarioBench::poison(const ScenarioCase& what) {
  if (what.scenario == Scenario::kPageable && goes_down(what))
    std::fill(pageable_.begin(), pageable_.end(), static_cast<char>(kPoison));
  for (const Gpu& gpu : gpus_) {
    const cuda::ScopedContext scope(driver_, gpu.context);
    CUresult result = CUDA_SUCCESS;
    if (goes_up(what)) result = driver_.cuMemsetD8(gpu.device, kPoison, max_bytes_);
    // By the GPU: lines that the CPU has written would slow the copy's writes (tools/measure.cpp).
    if (result == CUDA_SUCCESS && goes_down(what))
      result = driver_.cuMemcpyDtoH(gpu.landing, gpu.device, max_bytes_);
    if (result == CUDA_SUCCESS) result = driver_.cuCtxSynchronize();
    BRAID_TRY(driver_.check(result, "clearing the destinations"));
  }
  return {};
}

uint64_t ScenarioBench::bytes_of(const ScenarioCase& what) const {
  const uint64_t ways = what.scenario == Scenario::kBoth ? 2 : 1;
  return what.size_bytes * ways * gpus_.size();
}

Result<double> ScenarioBench::time_once(const ScenarioCase& what, Side side, std::string& verdict) {
  const CUstream main = gpus_.front().streams[0];
  const auto before = std::chrono::steady_clock::now();
  BRAID_TRY(driver_.check(driver_.cuEventRecord(begin_, main), "an event"));
  BRAID_TRY(start_all());
  BRAID_TRY(enqueue(what, side, verdict));
  BRAID_TRY(join_all());
  BRAID_TRY(driver_.check(driver_.cuEventRecord(end_, main), "an event"));
  BRAID_TRY(driver_.check(driver_.cuStreamSynchronize(main), "the copies"));
  const std::chrono::duration<double, std::micro> waited =
      std::chrono::steady_clock::now() - before;
  BRAID_LET(between_ms, elapsed_ms());
  // Staging happens on the CPU, beside the streams.
  const double elapsed_us =
      what.scenario == Scenario::kPageable ? waited.count() : between_ms * 1e3;
  return static_cast<double>(bytes_of(what)) / (elapsed_us * 1e3);
}

// Every stream begins where the first one is.
Status ScenarioBench::start_all() {
  for (const Gpu& gpu : gpus_) {
    const cuda::ScopedContext scope(driver_, gpu.context);
    for (const CUstream stream : gpu.streams)
      if (const CUresult result = driver_.cuStreamWaitEvent(stream, begin_, 0);
          result != CUDA_SUCCESS)
        return driver_.check(result, "a start");
  }
  return {};
}

Status ScenarioBench::join_all() {
  const CUstream main = gpus_.front().streams[0];
  for (const Gpu& gpu : gpus_)
    for (int i = 0; i < 2; ++i) {
      cuda::ScopedContext scope(driver_, gpu.context);
      CUresult result = driver_.cuEventRecord(gpu.ends[i], gpu.streams[i]);
      scope.leave();
      if (result == CUDA_SUCCESS) result = driver_.cuStreamWaitEvent(main, gpu.ends[i], 0);
      if (result != CUDA_SUCCESS) return driver_.check(result, "an end");
    }
  return {};
}

Status ScenarioBench::enqueue(const ScenarioCase& what, Side side, std::string& verdict) {
  if (what.scenario == Scenario::kBatch) return copy_batch(what, side, verdict);
  if (what.scenario == Scenario::kPageable) return copy_pageable(what, side, verdict);
  for (const Gpu& gpu : gpus_) {
    if (goes_up(what))
      BRAID_TRY(copy(gpu, Direction::kHostToDevice, what.size_bytes, side, verdict));
    if (goes_down(what))
      BRAID_TRY(copy(gpu, Direction::kDeviceToHost, what.size_bytes, side, verdict));
  }
  return {};
}

Status ScenarioBench::copy(const Gpu& gpu, Direction direction, uint64_t size_bytes, Side side,
                           std::string& verdict) {
  const cuda::ScopedContext scope(driver_, gpu.context);
  const multipath::Batch copy{direction, host_end(gpu, direction), device_end(gpu, direction),
                              size_bytes, gpu.streams[static_cast<size_t>(direction)]};
  if (side == Side::kBraid) {
    const Verdict outcome = engine_->submit(copy);
    verdict = multipath::verdict_name(outcome);
    if (outcome == Verdict::kAccelerated) return {};
  }
  return driver_.check(copy_natively(driver_, copy), "a native copy");
}

// Random places of both ends, each used once.
void ScenarioBench::scatter(const ScenarioCase& what) {
  const Gpu& gpu = gpus_.front();
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
    segments_.add({host_end(gpu, what.direction) + host[i] * stride,
                   device_end(gpu, what.direction) + device[i] * stride, what.segment_bytes});
  }
}

Status ScenarioBench::copy_batch(const ScenarioCase& what, Side side, std::string& verdict) {
  const Gpu& gpu = gpus_.front();
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
  const Gpu& gpu = gpus_.front();
  const bool up = what.direction == Direction::kHostToDevice;
  const CUdeviceptr device = device_end(gpu, what.direction);
  const CUstream stream = gpu.streams[static_cast<size_t>(what.direction)];
  if (side == Side::kBraid) {
    const auto staged =
        engine_->stage({what.direction, pageable_.data(), device, what.size_bytes, stream}, true);
    verdict = staged ? "staged" : "native";
    if (staged) return driver_.check(*staged, "a pageable copy");
  }
  return driver_.check(up ? driver_.cuMemcpyHtoD(device, pageable_.data(), what.size_bytes)
                          : driver_.cuMemcpyDtoH(pageable_.data(), device, what.size_bytes),
                       "a pageable copy");
}

// Without reading a source, which the CPU's caches would then hold when it is copied again.
Result<bool> ScenarioBench::verify(const ScenarioCase& what) {
  std::vector<char> seen(goes_up(what) ? max_bytes_ : 0);
  for (size_t i = 0; i < gpus_.size(); ++i) {
    const Gpu& gpu = gpus_[i];
    const cuda::ScopedContext scope(driver_, gpu.context);
    if (goes_up(what)) {
      BRAID_TRY(
          driver_.check(driver_.cuMemcpyDtoH(seen.data(), gpu.device, max_bytes_), "reading back"));
    }
    if (what.scenario == Scenario::kBatch) return has_segments(what, seen);
    if (goes_up(what) && !has_pattern(seen.data(), what.size_bytes, seed_of(i))) return false;
    const char* landed = what.scenario == Scenario::kPageable ? pageable_.data() : gpu.landing;
    if (goes_down(what) && !has_pattern(landed, what.size_bytes, seed_of(i))) return false;
  }
  return true;
}

bool ScenarioBench::has_segments(const ScenarioCase& what, const std::vector<char>& seen) const {
  const Gpu& gpu = gpus_.front();
  const bool up = what.direction == Direction::kHostToDevice;
  const auto segments = segments_.segments();
  return std::all_of(segments.begin(), segments.end(), [&](const Segment& segment) {
    const auto* host = static_cast<const char*>(segment.host);
    const uint64_t place = segment.device - device_end(gpu, what.direction);
    return up ? has_pattern(seen.data() + place, segment.size_bytes, seed_of(0),
                            static_cast<uint64_t>(host - gpu.data))
              : has_pattern(host, segment.size_bytes, seed_of(0), place);
  });
}

}  // namespace braid::tools
