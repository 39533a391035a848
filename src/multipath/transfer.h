// The terms of multipath (MMA section 3.4): a transfer travels on several paths, each of which
// carries a share of it (copy engines) or slices of it (kernels).
#pragma once

#include <cuda.h>

#include <array>
#include <cstdint>
#include <span>

namespace braid::multipath {

enum class Direction : uint8_t { kHostToDevice, kDeviceToHost };
const char* direction_name(Direction direction);  ///< "h2d", "d2h"

/// Which transfer goes first where transfers that kernels carry meet: an urgent one (a fetch that a
/// user waits for) overtakes a bulk one (an offload, a model load) at the next slice. Copy engines
/// ignore it. MMA section 3.4.1, priority queues.
enum class Priority : uint8_t { kBulk, kUrgent };

/// "bulk", "urgent".
const char* priority_name(Priority priority);

struct CopyPointers;

/// Puts the driver's own copies of a batch's first bytes into the batch's stream: copy engines
/// carry them over the link of the GPU where the memory lies. May stop inside a segment.
class OwnLink {
 public:
  virtual CUresult copy(uint64_t first_bytes) const = 0;

 protected:
  ~OwnLink() = default;
};

/// One contiguous piece of memory at both ends of a transfer.
struct Segment {
  void* host = nullptr;
  CUdeviceptr device = 0;
  uint64_t size_bytes = 0;
};

/// Segments that go the same way between host memory and one GPU, in the order of `stream`. They
/// have no order among each other, so no two may share a destination byte. The caller owns the
/// list, which is read during the call only. The caller also owns the memory, and keeps it alive
/// and unchanged until the stream has passed the copy, as CUDA asks. A linear copy is a batch of
/// one, and holds its segment itself. A list has one segment or more.
struct Batch {
  Batch() = default;
  Batch(Direction way, std::span<const Segment> list, CUstream in_stream,
        Priority rank = Priority::kBulk)
      : direction(way), stream(in_stream), priority(rank), segments_(list) {}
  Batch(Direction way, void* host, CUdeviceptr device, uint64_t size_bytes, CUstream in_stream,
        Priority rank = Priority::kBulk)
      : Batch(way, Segment{host, device, size_bytes}, in_stream, rank) {}
  Batch(Direction way, const Segment& only, CUstream in_stream, Priority rank = Priority::kBulk)
      : direction(way), stream(in_stream), priority(rank), only_(only) {}

  std::span<const Segment> segments() const {
    return segments_.empty() ? std::span(&only_, 1) : segments_;
  }
  const Segment& first() const { return segments().front(); }

  Direction direction = Direction::kHostToDevice;
  CUstream stream =
      nullptr;  ///< the handle itself: CU_STREAM_LEGACY, CU_STREAM_PER_THREAD, or a stream
  Priority priority = Priority::kBulk;
  const CopyPointers* pointers =
      nullptr;              ///< of the first segment, if the driver has been asked (classify.h)
  bool spares_sms = false;  ///< the program asks not to use SMs
  /// The bytes are read in the stream's order, also if they are not pinned: they are not staged.
  bool reads_in_order = false;
  /// Not null: no kernel of braid's may run on the GPU where the memory lies. This carries its own
  /// link's share, and relays' kernels carry the rest. Read during the call only.
  const OwnLink* own_link = nullptr;

 private:
  std::span<const Segment> segments_;  // empty: `only_` alone
  Segment only_;
};

uint64_t size_of(const Batch& batch);

/// One path of a copy, as it would be planned now.
struct CopyPath {
  int gpu = -1;             ///< whose PCIe link: that of the GPU with the memory, or a relay's
  uint64_t size_bytes = 0;  ///< of the copy
  double pcie_gbps = 0;     ///< what the cost model expects of the link
  double nvlink_gbps = 0;   ///< and of NVLink, from the relay or to it; 0: the path has none
};

/// What moves the bytes of a copy.
enum class Mover : uint8_t {
  kNative,      ///< the driver, as the program asked
  kKernel,      ///< pull kernels on every path's GPU (kernel_mover.h)
  kCopyEngine,  ///< the GPUs' copy engines, by a plan that is enqueued whole: no SM time
                ///< (copy_engine_mover.h)
};
inline constexpr int kMoverCount = static_cast<int>(Mover::kCopyEngine) + 1;

/// "native", "kernel", "copy_engine".
const char* mover_name(Mover mover);

/// The result of a copy: carried by braid, or the reason why it stayed native.
enum class Verdict : uint8_t {
  kAccelerated,
  kStaged,          ///< pageable memory, carried through pinned buffers (staging/stager.h)
  kBelowThreshold,  ///< smaller than the user's threshold, or too small to gain under the best
                    ///< conditions (cost_model.h)
  kNoGain,          ///< the cost model expects none, over the available paths
  kCold,            ///< the relays have been idle and must wake up; warm, they would gain
  kBlocked,         ///< a batch: kernels do not begin, since the program's own hold the SMs
  kPageable,        ///< the host memory, or part of it, is not pinned
  kNotLinear,       ///< not between host memory and memory that its GPU may touch (managed,
                    ///< imported, peer, read-only, or an unknown pointer)
  kCapturing,       ///< the stream is recording a graph
  kForeignContext,  ///< the memory or the stream belongs to a context braid has not prepared
  kNoRelay,         ///< no GPU can help or may touch the memory, or relays are turned off
  kSwitchedOff,     ///< a user has switched braid off in this process (braid switch)
  kNotReady,        ///< relays are opening or could not be opened, or another thread adds or
                    ///< forgets the context
  kSaturated,       ///< every transfer or channel is in use, or the stream has too many
  kDriverError,     ///< the driver refused a step before any byte moved
  kFailed,          ///< the driver refused a step after that: the call returns its error
};
inline constexpr int kVerdictCount = static_cast<int>(Verdict::kFailed) + 1;

/// "accelerated", "below_threshold", ...: the keys of the statistics.
const char* verdict_name(Verdict verdict);

/// Why a mover carries a copy.
enum class Reason : uint8_t {
  kFaster,  ///< faster than native by enough; the cost model chose the mover
  kAsked,   ///< the user's threshold says that this size is carried
};
const char* reason_name(Reason reason);  ///< "faster", "asked"

/// What the cost model expected of a copy.
struct Forecast {
  /// Microseconds, index: Mover. 0: not possible for this copy, or the model was not asked.
  std::array<double, kMoverCount> expected_us{};
  int paths = 0;                    ///< paths that could have been taken
  Reason reason = Reason::kFaster;  ///< the reason of a carried copy
};

/// The result of one copy, and how it travels if it is carried. Converts to its verdict.
struct Outcome {
  Outcome(Verdict why) : verdict(why) {}
  operator Verdict() const { return verdict; }

  Verdict verdict;
  CUresult error = CUDA_SUCCESS;  ///< kFailed: the return value of the call that asked for the copy
  Mover mover = Mover::kNative;   ///< of a staged copy: the mover of most chunks
  // Of a copy that a mover carried, or chunks of it:
  uint64_t via = 0;  ///< GPUs whose PCIe links were asked to carry slices: bit by ordinal
  uint32_t slice_bytes = 0;
  uint64_t own_bytes = 0;  ///< what the driver carries over the target's own link (OwnLink)
  Forecast forecast;
};

/// The result of a staged copy. Converts to the answer of the call that asked for it.
struct Staged {
  operator CUresult() const { return result; }

  CUresult result = CUDA_SUCCESS;
  Outcome outcome = Verdict::kStaged;
};

}  // namespace braid::multipath
