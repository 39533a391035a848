#include "tools/measure.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <numeric>
#include <random>
#include <thread>

#include "base/try.h"
#include "cuda/scoped_context.h"
#include "multipath/native_copy.h"
#include "tools/pattern.h"

namespace braid::tools {
namespace {

using multipath::Batch;
using multipath::Direction;
using multipath::Segment;
using multipath::Verdict;
using std::chrono::steady_clock;

bool goes_up(Direction direction) { return direction == Direction::kHostToDevice; }
Direction opposite(Direction direction) {
  return goes_up(direction) ? Direction::kDeviceToHost : Direction::kHostToDevice;
}

std::vector<uint64_t> shuffled(uint64_t count, std::mt19937_64& random) {
  std::vector<uint64_t> places(count);
  std::iota(places.begin(), places.end(), 0);
  std::shuffle(places.begin(), places.end(), random);
  return places;
}

double us_since(steady_clock::time_point before) {
  return std::chrono::duration<double, std::micro>(steady_clock::now() - before).count();
}

}  // namespace

// ---- What is measured with ----

Result<std::unique_ptr<Bench>> Bench::open(const cuda::Driver& driver, const Options& options,
                                           Scenario scenario, int target, uint64_t max_bytes,
                                           uint64_t seed) {
  std::unique_ptr<Bench> bench(new Bench(driver, target, seed));
  BRAID_TRY(bench->open_contexts());
  std::vector<CUcontext> contexts(scenario == Scenario::kBoth ? 2 : 1, bench->contexts_[target]);
  if (scenario == Scenario::kEveryGpu) contexts = bench->contexts_;
  for (const CUcontext context : contexts) BRAID_TRY(bench->open_lane(context, max_bytes));
  BRAID_TRY(driver.check(driver.cuCtxSetCurrent(contexts.front()), "choosing the first GPU"));
  BRAID_TRY(bench->open_engine(options));
  return bench;
}

Status Bench::open_contexts() {
  int count = 0;
  BRAID_TRY(driver_.check(driver_.cuDeviceGetCount(&count), "counting the GPUs"));
  if (target_ < 0 || target_ >= count)
    return Status::error("there is no GPU " + std::to_string(target_),
                         "Name a target from 0 to " + std::to_string(count - 1));
  for (int gpu = 0; gpu < count; ++gpu) {
    CUdevice device = 0;
    const std::string what = "opening GPU " + std::to_string(gpu);
    BRAID_TRY(driver_.check(driver_.cuDeviceGet(&device, gpu), what));
    BRAID_TRY(driver_.check(
        driver_.cuDevicePrimaryCtxRetain(&contexts_.emplace_back(nullptr), device), what));
  }
  return {};
}

Status Bench::open_lane(CUcontext context, uint64_t max_bytes) {
  const cuda::ScopedContext scope(driver_, context);
  const Lane& lane =
      lanes_.emplace_back(Lane{context, objects_.stream(), objects_.event(CU_EVENT_DISABLE_TIMING),
                               objects_.memory(max_bytes), objects_.pinned(max_bytes),
                               objects_.pinned(max_bytes), seed_ + lanes_.size()});
  BRAID_TRY(objects_.status());
  fill_pattern(lane.data, max_bytes, lane.seed);
  return {};
}

Status Bench::open_engine(const Options& options) {
  begin_ = objects_.event();
  end_ = objects_.event();
  BRAID_TRY(objects_.status());
  BRAID_LET(engine, multipath::Engine::open(driver_, options));
  engine_ = std::move(engine);
  BRAID_LET(warm_up, WarmUp::open(driver_, *engine_));
  warm_up_ = std::move(warm_up);
  return {};
}

// ---- In turns ----

Result<Record> Bench::run(const Case& what) {
  Record record;
  engine_->limit_paths(what.paths);
  for (Lane& lane : lanes_) {
    const bool is_way_back = what.scenario == Scenario::kBoth && &lane != &lanes_.front();
    lane.direction = is_way_back ? opposite(what.direction) : what.direction;
    lay_out(what, lane);
  }
  Readings warm_up;
  BRAID_TRY(measure_pair(what, false, record, warm_up, warm_up));
  const std::map<int, uint64_t> before = bytes_by_gpu(what.direction);
  for (int round = 0; round < what.repeat; ++round) {
    std::this_thread::sleep_for(std::chrono::milliseconds(what.pause_ms));
    // The first pair finds GPUs and caches as a pause, or the limit's copies, left them.
    if (what.times_first)
      BRAID_TRY(measure_pair(what, false, record, record.native_first, record.braid_first));
    for (int pair = 0; pair < what.steady_pairs; ++pair)
      BRAID_TRY(measure_pair(what, what.is_warm, record, record.native, record.braid));
    if (what.with_limit) BRAID_TRY(measure_limit(what, record.limit));
  }
  record.share = bytes_by_gpu(what.direction);
  for (const auto& [gpu, bytes] : before) record.share[gpu] -= bytes;
  std::erase_if(record.share, [](const auto& entry) { return entry.second == 0; });
  return record;
}

// Random places of both ends, each used once. Before copies are timed: a GPU's time begins when the
// stream's first event is recorded.
void Bench::lay_out(const Case& what, Lane& lane) {
  lane.host = goes_up(lane.direction) ? lane.data : lane.landing;
  if (what.scenario == Scenario::kPageable) {
    pageable_.assign(lane.data, lane.data + what.size_bytes);
    lane.host = pageable_.data();
  }
  std::mt19937_64 random(seed_);
  const uint64_t segment_bytes = what.bytes_of_segment();
  const auto host = shuffled(what.size_bytes / segment_bytes, random);
  const auto device = shuffled(host.size(), random);
  const uint64_t stride = what.span_bytes() / host.size();
  lane.segments = SegmentList(lane.direction);
  for (size_t i = 0; i < host.size(); ++i)
    lane.segments.add(
        {lane.host + host[i] * stride, lane.device + device[i] * stride, segment_bytes});
}

// One native copy and one of braid's, each verified.
Status Bench::measure_pair(const Case& what, bool is_warm, Record& record, Readings& native,
                           Readings& braid) {
  for (const Side side : {Side::kNative, Side::kBraid}) {
    for (const Lane& lane : lanes_) BRAID_TRY(clear(what, lane));
    // Over the paths that are measured, and against their direction, whose bytes are counted by
    // path.
    if (is_warm) BRAID_TRY(warm_up_->run(opposite(what.direction)));
    BRAID_LET(reading, time_once(what, side, record));
    (side == Side::kNative ? native : braid).values.push_back(reading);
    for (const Lane& lane : lanes_) {
      BRAID_LET(is_right, verify(what, lane));
      record.verified = record.verified && is_right;
    }
  }
  return {};
}

Status Bench::measure_limit(const Case& what, Readings& limit) {
  if (limit_ == nullptr) {
    BRAID_LET(opened, Limit::open(driver_, contexts_));
    limit_ = std::move(opened);
  }
  const Flow flow = what.scenario == Scenario::kBoth ? Flow::kBothWays
                    : goes_up(what.direction)        ? Flow::kToDevices
                                                     : Flow::kToHost;
  BRAID_LET(gbps, limit_->measure(flow));
  limit.values.push_back(gbps);
  return {};
}

// The destination holds nothing of what will arrive. The GPU sees to that: lines that the CPU has
// written or read lie in its caches, and the GPUs' writes would wait for them: 30 GB/s instead of
// 54 for 64 MB natively.
Status Bench::clear(const Case& what, const Lane& lane) {
  const cuda::ScopedContext scope(driver_, lane.context);
  CUresult result = driver_.cuMemsetD8(lane.device, kPoison, what.span_bytes());
  if (result == CUDA_SUCCESS && !goes_up(lane.direction))
    result = driver_.cuMemcpyDtoH(lane.landing, lane.device, what.span_bytes());
  if (result == CUDA_SUCCESS && !goes_up(lane.direction))
    result = driver_.cuMemcpyHtoD(lane.device, lane.data, what.span_bytes());
  // A memset may return before it is done, and the measured stream does not wait for it.
  if (result == CUDA_SUCCESS) result = driver_.cuCtxSynchronize();
  if (what.scenario == Scenario::kPageable && !goes_up(lane.direction))
    std::memset(lane.host, kPoison, what.size_bytes);
  return driver_.check(result, "clearing the destinations");
}

// Every stream begins and ends with the first one.
Result<double> Bench::time_once(const Case& what, Side side, Record& record) {
  const CUstream main = lanes_.front().stream;
  CUresult result = CUDA_SUCCESS;
  const auto must = [&result](CUresult step) { result = result == CUDA_SUCCESS ? step : result; };
  const auto before = steady_clock::now();
  must(driver_.cuEventRecord(begin_, main));
  for (const Lane& lane : lanes_) {
    const cuda::ScopedContext scope(driver_, lane.context);
    if (lane.stream != main) must(driver_.cuStreamWaitEvent(lane.stream, begin_, 0));
  }
  for (Lane& lane : lanes_) BRAID_TRY(copy(what, side, lane, record));
  for (const Lane& lane : lanes_) {
    if (lane.stream == main) continue;
    cuda::ScopedContext scope(driver_, lane.context);
    must(driver_.cuEventRecord(lane.end, lane.stream));
    scope.leave();
    must(driver_.cuStreamWaitEvent(main, lane.end, 0));
  }
  must(driver_.cuEventRecord(end_, main));
  must(driver_.cuStreamSynchronize(main));
  const double waited_us = us_since(before);
  float elapsed_ms = 0;
  must(driver_.cuEventElapsedTime(&elapsed_ms, begin_, end_));
  BRAID_TRY(driver_.check(result, "a measured copy"));
  // Staging happens on the CPU, beside the streams.
  const double elapsed_us =
      what.scenario == Scenario::kPageable ? waited_us : static_cast<double>(elapsed_ms) * 1e3;
  return static_cast<double>(what.size_bytes * lanes_.size()) / (elapsed_us * 1e3);
}

Status Bench::copy(const Case& what, Side side, Lane& lane, Record& record) {
  const cuda::ScopedContext scope(driver_, lane.context);
  const Batch batch{lane.direction, lane.segments.segments(), lane.stream};
  const bool is_pageable = what.scenario == Scenario::kPageable;
  if (side == Side::kBraid && is_pageable) {
    const auto staged = engine_->stage(batch, true);
    record.verdict = staged ? "staged" : "native";
    if (staged) return driver_.check(*staged, "a pageable copy");
  } else if (side == Side::kBraid) {
    const auto before = steady_clock::now();
    const Verdict outcome = engine_->submit(batch);
    record.submit_us.values.push_back(us_since(before));
    record.verdict = multipath::verdict_name(outcome);
    if (outcome == Verdict::kAccelerated) return {};
  }
  if (what.scenario == Scenario::kBatch) return lane.segments.copy_natively(driver_, lane.stream);
  if (!is_pageable) return driver_.check(copy_natively(driver_, batch), "a native copy");
  return driver_.check(goes_up(lane.direction)
                           ? driver_.cuMemcpyHtoD(lane.device, lane.host, what.size_bytes)
                           : driver_.cuMemcpyDtoH(lane.host, lane.device, what.size_bytes),
                       "a pageable copy");
}

// Without reading a source, which the CPU's caches would then hold when it is copied again.
Result<bool> Bench::verify(const Case& what, const Lane& lane) {
  const cuda::ScopedContext scope(driver_, lane.context);
  const bool is_up = goes_up(lane.direction);
  if (is_up) {
    BRAID_TRY(driver_.check(driver_.cuMemcpyDtoH(lane.landing, lane.device, what.span_bytes()),
                            "reading back"));
  }
  const char* landed = is_up ? lane.landing : lane.host;
  const auto segments = lane.segments.segments();
  return std::all_of(segments.begin(), segments.end(), [&](const Segment& segment) {
    const auto host_at = static_cast<uint64_t>(static_cast<char*>(segment.host) - lane.host);
    const uint64_t device_at = segment.device - lane.device;
    return has_pattern(landed + (is_up ? device_at : host_at), segment.size_bytes, lane.seed,
                       is_up ? host_at : device_at);
  });
}

std::map<int, uint64_t> Bench::bytes_by_gpu(Direction direction) {
  constexpr int kWaitMs = 5000;
  std::map<int, uint64_t> bytes;
  for (const multipath::PathCount& count : engine_->collect(kWaitMs))
    if (count.direction == direction && count.target == target_) bytes[count.via] += count.bytes;
  return bytes;
}

}  // namespace braid::tools
