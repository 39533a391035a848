#include "tools/measure.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <numeric>
#include <random>
#include <thread>

#include "cuda/scoped_context.h"
#include "tools/pattern.h"

namespace braid::tools {
namespace {

using multipath::Direction;
using multipath::Verdict;

// Measured copies alternate between two sets of random bytes, so that what a destination held
// before is wrong in every byte's place. Overwriting it from the CPU instead would leave its lines
// dirty in the caches, and the GPUs' writes would wait for them: 30 GB/s instead of 54 for 64 MB
// natively. Lines that the CPU has only read slow relays too: a landing buffer that was verified is
// first written again by its GPU.
constexpr int kDataSets = 2;

double gbps(uint64_t bytes, float elapsed_ms) {
  return static_cast<double>(bytes) / (static_cast<double>(elapsed_ms) * 1e6);
}

}  // namespace

double Readings::median() const {
  if (values.empty()) return 0;
  std::vector<double> sorted = values;
  std::sort(sorted.begin(), sorted.end());
  const size_t middle = sorted.size() / 2;
  return sorted.size() % 2 != 0 ? sorted[middle] : (sorted[middle - 1] + sorted[middle]) / 2;
}

double Readings::lowest() const {
  return values.empty() ? 0 : *std::min_element(values.begin(), values.end());
}

double Readings::highest() const {
  return values.empty() ? 0 : *std::max_element(values.begin(), values.end());
}

Result<std::unique_ptr<Bench>> Bench::open(const cuda::Driver& driver, const Options& options,
                                           int target, uint64_t max_bytes, uint64_t seed) {
  std::unique_ptr<Bench> bench(new Bench(driver, target, max_bytes, seed));
  const Status status = bench->prepare(options);
  if (!status.ok()) return status;
  return bench;
}

Status Bench::prepare(const Options& options) {
  Status status = open_gpus();
  if (status.ok()) status = allocate();
  if (!status.ok()) return status;
  for (int set = 0; set < kDataSets; ++set) fill_pattern(data_[set], max_bytes_, seed_of(set));
  auto engine = multipath::Engine::open(driver_, options);
  if (!engine.ok()) return engine.status();
  engine_ = std::move(engine).value();
  auto warm_up = WarmUp::open(driver_, *engine_);
  if (!warm_up.ok()) return warm_up.status();
  warm_up_ = std::move(warm_up).value();
  return {};
}

Status Bench::open_gpus() {
  int count = 0;
  Status status = driver_.check(driver_.cuDeviceGetCount(&count), "counting the GPUs");
  if (!status.ok()) return status;
  if (target_ < 0 || target_ >= count)
    return Status::error("there is no GPU " + std::to_string(target_),
                         "Name a target from 0 to " + std::to_string(count - 1));
  for (int gpu = 0; gpu < count; ++gpu) {
    CUdevice device = 0;
    CUcontext context = nullptr;
    status = driver_.check(driver_.cuDeviceGet(&device, gpu), "opening a GPU");
    if (status.ok())
      status = driver_.check(driver_.cuDevicePrimaryCtxRetain(&context, device),
                             "opening GPU " + std::to_string(gpu));
    if (!status.ok()) return status;
    contexts_.push_back(context);
  }
  return driver_.check(driver_.cuCtxSetCurrent(contexts_[target_]), "choosing the target GPU");
}

Status Bench::allocate() {
  const auto pinned = [&](char*& buffer) {
    void* memory = nullptr;
    const Status status =
        driver_.check(driver_.cuMemHostAlloc(&memory, max_bytes_, CU_MEMHOSTALLOC_PORTABLE),
                      "pinning " + std::to_string(max_bytes_ >> 20) + " MB of host memory");
    buffer = static_cast<char*>(memory);
    return status;
  };
  data_.resize(kDataSets);
  Status status = pinned(landing_);
  for (char*& data : data_)
    if (status.ok()) status = pinned(data);
  if (status.ok())
    status = driver_.check(driver_.cuMemAlloc(&device_, max_bytes_),
                           "allocating " + std::to_string(max_bytes_ >> 20) + " MB on the GPU");
  if (status.ok())
    status = driver_.check(driver_.cuStreamCreate(&stream_, CU_STREAM_NON_BLOCKING), "a stream");
  if (status.ok()) status = driver_.check(driver_.cuEventCreate(&begin_, 0), "an event");
  if (status.ok()) status = driver_.check(driver_.cuEventCreate(&end_, 0), "an event");
  return status;
}

Bench::~Bench() {
  limit_.reset();
  warm_up_.reset();
  engine_.reset();
  cuda::ScopedContext scope(driver_);
  if (target_ >= 0 && target_ < gpu_count()) scope.enter(contexts_[target_]);
  if (begin_ != nullptr) driver_.cuEventDestroy(begin_);
  if (end_ != nullptr) driver_.cuEventDestroy(end_);
  if (stream_ != nullptr) driver_.cuStreamDestroy(stream_);
  if (device_ != 0) driver_.cuMemFree(device_);
  for (char* data : data_)
    if (data != nullptr) driver_.cuMemFreeHost(data);
  if (landing_ != nullptr) driver_.cuMemFreeHost(landing_);
}

Result<Record> Bench::run(const Case& what) {
  Record record;
  record.direction = what.direction;
  record.size_bytes = what.size_bytes;
  record.target = target_;
  record.paths = what.paths;
  record.verified = true;
  engine_->limit_paths(what.paths);
  Status status = poison(what.span_bytes());
  if (!status.ok()) return status;
  Readings warm_up;
  status = measure_pair(what, false, record, warm_up, warm_up);
  if (!status.ok()) return status;
  const std::map<int, uint64_t> before = bytes_by_gpu(what.direction);
  for (int round = 0; round < what.repeat; ++round) {
    std::this_thread::sleep_for(std::chrono::milliseconds(what.pause_ms));
    // The first pair finds GPUs and caches as a pause, or the limit's copies, left them.
    status = measure_pair(what, false, record, record.native_first, record.braid_first);
    for (int pair = 0; pair < what.steady_pairs && status.ok(); ++pair)
      status = measure_pair(what, what.is_warm, record, record.native, record.braid);
    if (status.ok() && what.with_limit) status = measure_limit(what, record);
    if (!status.ok()) return status;
  }
  record.share = bytes_by_gpu(what.direction);
  for (const auto& [gpu, bytes] : before) record.share[gpu] -= bytes;
  std::erase_if(record.share, [](const auto& entry) { return entry.second == 0; });
  return record;
}

// One native copy and one of braid's, each verified.
Status Bench::measure_pair(const Case& what, bool is_warm, Record& record, Readings& native,
                           Readings& braid) {
  for (const bool through_braid : {false, true}) {
    Status status = next_data(what);
    if (status.ok() && is_warm) status = wake(what.direction);
    if (!status.ok()) return status;
    const auto reading = time_copy(what, through_braid, record.verdict);
    if (!reading.ok()) return reading.status();
    const auto right = verify(what);
    if (!right.ok()) return right.status();
    record.verified = record.verified && right.value();
    (through_braid ? braid : native).values.push_back(reading.value());
    if (through_braid) record.submit_us.values.push_back(submit_us_);
  }
  return {};
}

// Over the paths that are measured, and against their direction, whose bytes are counted by path.
Status Bench::wake(Direction direction) {
  return warm_up_->run(direction == Direction::kHostToDevice ? Direction::kDeviceToHost
                                                             : Direction::kHostToDevice);
}

char* Bench::host_end(Direction direction) const {
  return direction == Direction::kHostToDevice ? data_[set_] : landing_;
}

Status Bench::native_copy(const Case& what) {
  if (what.segment_bytes != 0) return segments_.copy_natively(driver_, stream_);
  char* host = host_end(what.direction);
  const CUresult result = what.direction == Direction::kHostToDevice
                              ? driver_.cuMemcpyHtoDAsync(device_, host, what.size_bytes, stream_)
                              : driver_.cuMemcpyDtoHAsync(host, device_, what.size_bytes, stream_);
  return driver_.check(result, "a native copy");
}

// Both ends of a segment lie equally far into their buffers, so that what lands can be verified in
// place. Before the copy is timed: a GPU's time begins when the stream's first event is recorded.
void Bench::list_segments(const Case& what) {
  segments_ = SegmentList(what.direction);
  if (what.segment_bytes == 0) {
    segments_.add({host_end(what.direction), device_, what.size_bytes});
    return;
  }
  std::vector<uint64_t> places(what.size_bytes / what.segment_bytes);
  std::iota(places.begin(), places.end(), 0);
  std::shuffle(places.begin(), places.end(), std::mt19937_64(seed_));
  for (const uint64_t place : places) {
    const uint64_t offset = place * 2 * what.segment_bytes;
    segments_.add({host_end(what.direction) + offset, device_ + offset, what.segment_bytes});
  }
}

Result<double> Bench::time_copy(const Case& what, bool through_braid, std::string& verdict) {
  Status status = driver_.check(driver_.cuEventRecord(begin_, stream_), "an event");
  if (!status.ok()) return status;
  Verdict outcome = Verdict::kBelowThreshold;
  if (through_braid) {
    const auto before = std::chrono::steady_clock::now();
    outcome = engine_->submit(multipath::Batch{what.direction, segments_.segments(), stream_});
    const std::chrono::duration<double, std::micro> taken =
        std::chrono::steady_clock::now() - before;
    submit_us_ = taken.count();
    verdict = multipath::verdict_name(outcome);
  }
  if (outcome != Verdict::kAccelerated) status = native_copy(what);
  if (status.ok()) status = driver_.check(driver_.cuEventRecord(end_, stream_), "an event");
  if (status.ok()) status = driver_.check(driver_.cuStreamSynchronize(stream_), "the copy");
  float elapsed_ms = 0;
  if (status.ok())
    status = driver_.check(driver_.cuEventElapsedTime(&elapsed_ms, begin_, end_), "timing");
  if (!status.ok()) return status;
  return gbps(what.size_bytes, elapsed_ms);
}

// Both destinations hold nothing of what will arrive.
Status Bench::poison(uint64_t size_bytes) {
  std::memset(landing_, kPoison, size_bytes);
  Status status =
      driver_.check(driver_.cuMemsetD8(device_, kPoison, size_bytes), "clearing the GPU");
  // A memset may return before it is done, and the measured stream does not wait for it.
  return status.ok() ? driver_.check(driver_.cuCtxSynchronize(), "clearing the GPU") : status;
}

// The other data set is copied next; for D2H the GPU is given it, after it has written what it
// held.
Status Bench::next_data(const Case& what) {
  set_ = (set_ + 1) % kDataSets;
  list_segments(what);
  if (what.direction == Direction::kHostToDevice) return {};
  const Status status = driver_.check(driver_.cuMemcpyDtoH(landing_, device_, what.span_bytes()),
                                      "clearing the landing buffer");
  if (!status.ok()) return status;
  return driver_.check(driver_.cuMemcpyHtoD(device_, data_[set_], what.span_bytes()),
                       "filling the GPU");
}

Result<bool> Bench::verify(const Case& what) {
  if (what.direction == Direction::kHostToDevice) {
    const Status status =
        driver_.check(driver_.cuMemcpyDtoH(landing_, device_, what.span_bytes()), "reading back");
    if (!status.ok()) return status;
  }
  return has_landed();
}

bool Bench::has_landed() const {
  const std::span<const multipath::Segment> all = segments_.segments();
  return std::all_of(all.begin(), all.end(), [&](const multipath::Segment& segment) {
    const uint64_t offset = segment.device - device_;
    return has_pattern(landing_ + offset, segment.size_bytes, seed_of(set_), offset);
  });
}

Status Bench::measure_limit(const Case& what, Record& record) {
  if (limit_ == nullptr) {
    auto limit = Limit::open(driver_, contexts_);
    if (!limit.ok()) return limit.status();
    limit_ = std::move(limit).value();
  }
  const auto reading = limit_->measure(what.direction == Direction::kHostToDevice ? Flow::kToDevices
                                                                                  : Flow::kToHost);
  if (!reading.ok()) return reading.status();
  record.limit.values.push_back(reading.value());
  return {};
}

std::map<int, uint64_t> Bench::bytes_by_gpu(Direction direction) {
  constexpr int kWaitMs = 5000;
  std::map<int, uint64_t> bytes;
  for (const multipath::PathCount& count : engine_->collect(kWaitMs))
    if (count.direction == direction && count.target == target_) bytes[count.via] += count.bytes;
  return bytes;
}

}  // namespace braid::tools
