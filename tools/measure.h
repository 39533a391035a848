// Measuring copies: native, through braid, and the server's limit (limit.h). All three are timed by
// events on the stream, so they mean the same on hardware and in virtual time, and can be taken in
// turns within one run. Every measured copy is verified, every byte.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/status.h"
#include "cuda/driver.h"
#include "multipath/engine.h"
#include "tools/segment_list.h"
#include "tools/workbench.h"

namespace braid::tools {

/// What became of copies that were measured in turns. GB/s: 10^9 bytes a second.
struct Outcome {
  Readings native;       ///< GB/s
  Readings braid;        ///< GB/s
  Readings limit;        ///< GB/s; empty when it is left out
  bool verified = true;  ///< every byte of every copy, native and braid
  std::string verdict;   ///< what became of the braid copies: "accelerated", ...
};

/// One line of `braid bench`. Its readings are of copies that follow one another.
struct Record : Outcome {
  multipath::Direction direction = multipath::Direction::kHostToDevice;
  uint64_t size_bytes = 0;
  int target = 0;
  int paths = 0;                  ///< at most this many, the direct one included
  Readings native_first;          ///< GB/s; the first copy of each round, after a pause
  Readings braid_first;           ///< GB/s; likewise
  Readings submit_us;             ///< CPU time of handing one copy to braid
  std::map<int, uint64_t> share;  ///< bytes by the GPU whose link carried them
};

struct Case {
  multipath::Direction direction = multipath::Direction::kHostToDevice;
  uint64_t size_bytes = 0;
  int paths = 0;
  int repeat = 0;
  bool with_limit = false;
  int steady_pairs = 3;  ///< of each round, after the first
  int pause_ms = 0;      ///< before each round, so that GPUs are idle; virtual time does not pass
  bool is_warm = false;  ///< copies that follow one another find GPUs awake (warm_up.h)
  /// Not 0: batches of segments of this size, apart from each other and in random order. They take
  /// twice the room.
  uint64_t segment_bytes = 0;
  uint64_t span_bytes() const { return segment_bytes == 0 ? size_bytes : 2 * size_bytes; }
};

/// Owns the buffers and the engine for measuring copies to and from one GPU.
class Bench : Workbench {
 public:
  /// `max_bytes` bounds the room that cases take. Allocates that much device memory, and three
  /// times as much pinned memory.
  static Result<std::unique_ptr<Bench>> open(const cuda::Driver& driver, const Options& options,
                                             int target, uint64_t max_bytes, uint64_t seed);
  Bench(const Bench&) = delete;
  Bench& operator=(const Bench&) = delete;

  int gpu_count() const { return static_cast<int>(contexts_.size()); }

  /// Native and braid (and the limit) in turns, `repeat` rounds of several pairs.
  Result<Record> run(const Case& what);

 private:
  Bench(const cuda::Driver& driver, int target, uint64_t max_bytes, uint64_t seed)
      : Workbench(driver, target), max_bytes_(max_bytes), seed_(seed) {}
  Status prepare(const Options& options);
  Status measure_pair(const Case& what, bool is_warm, Record& record, Readings& native,
                      Readings& braid);
  uint64_t seed_of(int set) const { return seed_ + static_cast<uint64_t>(set); }
  Result<double> time_copy(const Case& what, bool through_braid, std::string& verdict);
  Status poison(uint64_t size_bytes);
  void list_segments(const Case& what);
  Status next_data(const Case& what);
  Result<bool> verify(const Case& what);
  bool has_landed() const;
  char* host_end(multipath::Direction direction) const;
  Status native_copy(const Case& what);
  std::map<int, uint64_t> bytes_by_gpu(multipath::Direction direction);

  uint64_t max_bytes_;
  uint64_t seed_;
  std::vector<char*> data_;  // pinned: what is copied, or what D2H must arrive as
  int set_ = 0;              // the data set that the next copy takes
  char* landing_ = nullptr;  // pinned: where D2H lands, and where H2D is read back to
  CUdeviceptr device_ = 0;
  SegmentList segments_{multipath::Direction::kHostToDevice};  // of the next batch
  CUstream stream_ = nullptr;
  double submit_us_ = 0;  // of the latest braid copy
};

}  // namespace braid::tools
