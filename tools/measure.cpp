#include "tools/measure.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <numeric>
#include <random>
#include <thread>

#include "base/try.h"
#include "multipath/native_copy.h"
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

bool goes_up(Direction direction) { return direction == Direction::kHostToDevice; }

Direction opposite(Direction direction) {
  return goes_up(direction) ? Direction::kDeviceToHost : Direction::kHostToDevice;
}

}  // namespace

Result<std::unique_ptr<Bench>> Bench::open(const cuda::Driver& driver, const Options& options,
                                           int target, uint64_t max_bytes, uint64_t seed) {
  std::unique_ptr<Bench> bench(new Bench(driver, target, max_bytes, seed));
  BRAID_TRY(bench->prepare(options));
  return bench;
}

Status Bench::prepare(const Options& options) {
  BRAID_TRY(open_gpus());
  landing_ = objects_.pinned(max_bytes_);
  for (int set = 0; set < kDataSets; ++set) data_.push_back(objects_.pinned(max_bytes_));
  device_ = objects_.memory(max_bytes_);
  stream_ = objects_.stream();
  BRAID_TRY(objects_.status());
  for (int set = 0; set < kDataSets; ++set) fill_pattern(data_[set], max_bytes_, seed_of(set));
  return open_engine(options);
}

Result<Record> Bench::run(const Case& what) {
  Record record;
  record.direction = what.direction;
  record.size_bytes = what.size_bytes;
  record.target = target_;
  record.paths = what.paths;
  engine_->limit_paths(what.paths);
  BRAID_TRY(poison(what.span_bytes()));
  Readings warm_up;
  BRAID_TRY(measure_pair(what, false, record, warm_up, warm_up));
  const std::map<int, uint64_t> before = bytes_by_gpu(what.direction);
  for (int round = 0; round < what.repeat; ++round) {
    std::this_thread::sleep_for(std::chrono::milliseconds(what.pause_ms));
    // The first pair finds GPUs and caches as a pause, or the limit's copies, left them.
    BRAID_TRY(measure_pair(what, false, record, record.native_first, record.braid_first));
    for (int pair = 0; pair < what.steady_pairs; ++pair)
      BRAID_TRY(measure_pair(what, what.is_warm, record, record.native, record.braid));
    const Flow flow = goes_up(what.direction) ? Flow::kToDevices : Flow::kToHost;
    if (what.with_limit) BRAID_TRY(measure_limit(flow, record.limit));
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
    BRAID_TRY(next_data(what));
    // Over the paths that are measured, and against their direction, whose bytes are counted by
    // path.
    if (is_warm) BRAID_TRY(warm_up_->run(opposite(what.direction)));
    BRAID_LET(reading, time_copy(what, through_braid, record.verdict));
    BRAID_LET(right, verify(what));
    record.verified = record.verified && right;
    (through_braid ? braid : native).values.push_back(reading);
    if (through_braid) record.submit_us.values.push_back(submit_us_);
  }
  return {};
}

char* Bench::host_end(Direction direction) const {
  return goes_up(direction) ? data_[set_] : landing_;
}

Status Bench::native_copy(const Case& what) {
  if (what.segment_bytes != 0) return segments_.copy_natively(driver_, stream_);
  return driver_.check(multipath::copy_natively(driver_, {what.direction, host_end(what.direction),
                                                          device_, what.size_bytes, stream_}),
                       "a native copy");
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
  BRAID_TRY(driver_.check(driver_.cuEventRecord(begin_, stream_), "an event"));
  Verdict outcome = Verdict::kBelowThreshold;
  if (through_braid) {
    const auto before = std::chrono::steady_clock::now();
    outcome = engine_->submit(multipath::Batch{what.direction, segments_.segments(), stream_});
    const std::chrono::duration<double, std::micro> taken =
        std::chrono::steady_clock::now() - before;
    submit_us_ = taken.count();
    verdict = multipath::verdict_name(outcome);
  }
  if (outcome != Verdict::kAccelerated) BRAID_TRY(native_copy(what));
  BRAID_TRY(driver_.check(driver_.cuEventRecord(end_, stream_), "an event"));
  BRAID_TRY(driver_.check(driver_.cuStreamSynchronize(stream_), "the copy"));
  BRAID_LET(elapsed, elapsed_ms());
  return static_cast<double>(what.size_bytes) / (elapsed * 1e6);
}

// Both destinations hold nothing of what will arrive.
Status Bench::poison(uint64_t size_bytes) {
  std::memset(landing_, kPoison, size_bytes);
  BRAID_TRY(driver_.check(driver_.cuMemsetD8(device_, kPoison, size_bytes), "clearing the GPU"));
  // A memset may return before it is done, and the measured stream does not wait for it.
  return driver_.check(driver_.cuCtxSynchronize(), "clearing the GPU");
}

// The other data set is copied next; for D2H the GPU is given it, after it has written what it
// held.
Status Bench::next_data(const Case& what) {
  set_ = (set_ + 1) % kDataSets;
  list_segments(what);
  if (goes_up(what.direction)) return {};
  BRAID_TRY(driver_.check(driver_.cuMemcpyDtoH(landing_, device_, what.span_bytes()),
                          "clearing the landing buffer"));
  return driver_.check(driver_.cuMemcpyHtoD(device_, data_[set_], what.span_bytes()),
                       "filling the GPU");
}

Result<bool> Bench::verify(const Case& what) {
  if (goes_up(what.direction)) {
    BRAID_TRY(
        driver_.check(driver_.cuMemcpyDtoH(landing_, device_, what.span_bytes()), "reading back"));
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

std::map<int, uint64_t> Bench::bytes_by_gpu(Direction direction) {
  constexpr int kWaitMs = 5000;
  std::map<int, uint64_t> bytes;
  for (const multipath::PathCount& count : engine_->collect(kWaitMs))
    if (count.direction == direction && count.target == target_) bytes[count.via] += count.bytes;
  return bytes;
}

}  // namespace braid::tools
