// Measuring copies: native, through braid, and the server's limit (limit.h). All three are timed by
// events on the stream, so they mean the same on hardware and in virtual time, and can be taken in
// turns within one run. Every measured copy is verified, every byte.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/options.h"
#include "base/status.h"
#include "cuda/driver.h"
#include "multipath/engine.h"
#include "tools/gpu_objects.h"
#include "tools/limit.h"
#include "tools/readings.h"
#include "tools/segment_list.h"
#include "tools/warm_up.h"

namespace braid::tools {

enum class Scenario {
  kLinear,    ///< one copy of pinned memory
  kBatch,     ///< segments at random places of both ends, as one batch
  kBoth,      ///< to the target and from it at once, on two streams
  kEveryGpu,  ///< each GPU its own copy, all at once
  kPageable,  ///< memory that is not pinned; by the wall clock, the call and its stream
};

struct Case {
  Scenario scenario = Scenario::kLinear;
  multipath::Direction direction = multipath::Direction::kHostToDevice;  ///< not of kBoth
  uint64_t size_bytes = 0;     ///< of each direction, or of each GPU
  uint64_t segment_bytes = 0;  ///< of kBatch
  int paths = 0;               ///< at most this many, the direct one included; 0: no limit
  int repeat = 0;
  bool with_limit = false;
  bool times_first = true;  ///< each round begins with a pair after a pause
  int steady_pairs = 3;     ///< of each round, after that
  int pause_ms = 0;      ///< before each round, so that GPUs are idle; virtual time does not pass
  bool is_warm = false;  ///< copies that follow one another find GPUs awake (warm_up.h)

  /// The room that they take at each end: segments lie in places of twice their size, so that no
  /// two touch.
  uint64_t span_bytes() const { return scenario == Scenario::kBatch ? 2 * size_bytes : size_bytes; }
  uint64_t bytes_of_segment() const {
    return scenario == Scenario::kBatch ? segment_bytes : size_bytes;
  }
};

/// What became of copies that were measured in turns. GB/s: 10^9 bytes a second, of all bytes that
/// were under way together.
struct Record {
  Readings native;                ///< GB/s; of copies that follow one another
  Readings braid;                 ///< GB/s; likewise
  Readings native_first;          ///< GB/s; the first copy of each round, after a pause
  Readings braid_first;           ///< GB/s; likewise
  Readings limit;                 ///< GB/s; empty when it is left out
  Readings submit_us;             ///< CPU time of handing one copy to braid
  std::map<int, uint64_t> share;  ///< bytes by the GPU whose link carried them
  bool verified = true;           ///< every byte of every copy, native and braid
  std::string verdict;            ///< what became of the last braid copy: "accelerated", ...
};

/// Owns the contexts of all GPUs, an engine and, for each copy that is under way at once, a stream
/// and buffers.
class Bench {
 public:
  /// `max_bytes` bounds the room that cases take. Allocates so much device memory, and twice as
  /// much pinned memory; for kBoth and kEveryGpu, which have a bench of their own, so much for each
  /// direction or GPU.
  static Result<std::unique_ptr<Bench>> open(const cuda::Driver& driver, const Options& options,
                                             Scenario scenario, int target, uint64_t max_bytes,
                                             uint64_t seed);
  Bench(const Bench&) = delete;
  Bench& operator=(const Bench&) = delete;

  int gpu_count() const { return static_cast<int>(contexts_.size()); }

  /// Native and braid (and the limit) in turns: one pair that does not count, then `repeat` rounds
  /// of several.
  Result<Record> run(const Case& what);

 private:
  /// One direction of one GPU.
  struct Lane {
    CUcontext context;
    CUstream stream;
    CUevent end;
    CUdeviceptr device;
    char* data;     ///< pinned: what is copied, or what must arrive
    char* landing;  ///< pinned: where D2H lands, and where H2D is read back to
    uint64_t seed;  ///< of the bytes
    // Of the case:
    multipath::Direction direction = multipath::Direction::kHostToDevice;
    char* host = nullptr;  ///< the end that is copied from or to
    SegmentList segments{multipath::Direction::kHostToDevice};
  };
  enum class Side { kNative, kBraid };

  Bench(const cuda::Driver& driver, int target, uint64_t seed)
      : driver_(driver), target_(target), seed_(seed), objects_(driver) {}
  Status open_contexts();
  Status open_lane(CUcontext context, uint64_t max_bytes);
  Status open_engine(const Options& options);
  void lay_out(const Case& what, Lane& lane);
  Status measure_pair(const Case& what, bool is_warm, Record& record, Readings& native,
                      Readings& braid);
  Status measure_limit(const Case& what, Readings& limit);
  Status clear(const Case& what, const Lane& lane);
  Result<double> time_once(const Case& what, Side side, Record& record);
  Status copy(const Case& what, Side side, Lane& lane, Record& record);
  Result<bool> verify(const Case& what, const Lane& lane);
  std::map<int, uint64_t> bytes_by_gpu(multipath::Direction direction);

  const cuda::Driver& driver_;
  const int target_;
  const uint64_t seed_;
  std::vector<CUcontext> contexts_;  // of every GPU
  GpuObjects objects_;
  std::vector<Lane> lanes_;  // what is under way at once; times are of the first one's stream
  CUevent begin_ = nullptr;
  CUevent end_ = nullptr;
  std::unique_ptr<multipath::Engine> engine_;
  std::unique_ptr<WarmUp> warm_up_;
  std::unique_ptr<Limit> limit_;  // opened when it is first asked for
  std::vector<char> pageable_;
};

}  // namespace braid::tools
