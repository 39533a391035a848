// A program is data, made from a seed: regions of memory, streams, and for each phase what each
// thread does. Between phases all threads meet.
//
// Its result is determined, whatever the machine runs first: a region belongs to one thread in a
// phase and to one stream at a time, and is handed over by an event that the next stream waits for,
// or by waiting on the host. What is left open is only how far streams have come at a query.
#pragma once

#include <cuda.h>

#include <cstdint>
#include <string>
#include <vector>

namespace braid::stress {

enum class RegionKind : uint8_t {
  kPinned,
  kRegistered,
  kPageable,
  kDevice,
  kPool,    ///< stream-ordered
  kMapped,  ///< virtual memory management, for its own GPU only
  kManaged,
};

struct Region {
  RegionKind kind;
  int gpu;  ///< the context it is allocated in
  uint64_t size_bytes;

  bool is_host() const { return kind <= RegionKind::kPageable; }
  /// Kernels of its own GPU may touch it, and of any GPU if it is pinned.
  bool is_for_kernels() const {
    return kind != RegionKind::kPageable && kind != RegionKind::kManaged;
  }
  /// A reset of its GPU's primary context takes it, or its registration, away.
  bool ends_with_context() const {
    return kind == RegionKind::kPinned || kind == RegionKind::kRegistered ||
           kind == RegionKind::kDevice || kind == RegionKind::kManaged;
  }
  /// Asynchronous copies of it never wait.
  bool is_prompt() const { return kind != RegionKind::kPageable && kind != RegionKind::kManaged; }
};

enum class Flavour : uint8_t { kLegacy, kPerThread, kBlocking, kNonBlocking, kUrgent };

struct Stream {
  Flavour flavour;
  int gpu;
  bool is_default() const { return flavour <= Flavour::kPerThread; }
  bool is_non_blocking() const { return flavour >= Flavour::kNonBlocking; }
};

/// The entry points; each has a form whose null stream is legacy and one for which it is the
/// thread's own.
enum class CopyCall : uint8_t {
  kUp,
  kDown,
  kAny,
  kRows,           ///< cuMemcpy2D
  kRowsUnaligned,  ///< cuMemcpy2DUnaligned, which is always synchronous
  kLayers,         ///< cuMemcpy3D
  kBatchFirst,     ///< cuMemcpyBatchAsync of CUDA 12.8
  kBatch,          ///< of CUDA 13
  kBoxesFirst,     ///< cuMemcpy3DBatchAsync of CUDA 12.8
  kBoxes,          ///< of CUDA 13
};

struct Piece {
  int to, from;  ///< regions
  uint64_t to_offset, from_offset;
  uint64_t size_bytes;  ///< of linear copies
};

/// Of copies with rows: both ends of every piece.
struct Shape {
  uint64_t width_bytes = 0, height = 1, depth = 1;
  uint64_t to_pitch_bytes = 0, from_pitch_bytes = 0;
  uint64_t to_layer_rows = 0, from_layer_rows = 0;
};

struct Copy {
  CopyCall call = CopyCall::kAny;
  bool is_async = false;
  bool has_per_thread_symbol = false;
  std::vector<Piece> pieces{};  ///< one, except in batches
  Shape shape{};
  CUmemcpySrcAccessOrder order = CU_MEMCPY_SRC_ACCESS_ORDER_STREAM;
  uint64_t second_attribute_at = 0;  ///< 0: one attribute for all
};

/// Calls with arguments that the driver refuses. No memory changes.
enum class Mistake : uint8_t {
  kTooLong,
  kNullDevice,
  kNullHost,
  kDestroyedStream,
  kFreedMemory,
  kEmptyBatch,
  kBatchWithoutAttributes,
  kBatchAttributeStart,
  kBatchOrder,
  kBatchEntryTooLong,
  kBatchOnLegacy,
  kRowsOverlap,
  kBoxesFlags,
};
inline constexpr int kMistakes = 13;

/// What a child does, which may not use CUDA.
enum class ForkEnd : uint8_t {
  kLeave,    ///< _exit
  kExecute,  ///< becomes another program, in the same environment
};
inline constexpr int kForkEnds = 2;

enum class Step : uint8_t {
  kCopy,
  kFill,           ///< memset of a piece of a region
  kRecord,         ///< event, stream
  kWait,           ///< event, stream
  kSyncEvent,      ///< and the event must then have passed
  kSyncStream,     ///< and the stream must then have nothing left
  kSyncContext,    ///< of the stream's GPU
  kCheckOrder,     ///< event before other_event, both of one stream
  kHostFunction,   ///< in the stream: changes a region, and notes what it saw
  kTouch,          ///< the CPU changes a region, and notes what it saw
  kHold,           ///< the stream waits for the event's word
  kCheckHeld,      ///< its next event has not passed, and the region (if any) is as it was
  kRelease,        ///< by the host, or (`value` 1) by a stream
  kRenew,          ///< the region is freed, allocated again and filled
  kRenewInStream,  ///< the same for a pool's region, in stream order
  kRenewStream,    ///< destroyed with whatever is in it, and created again
  kCapture,        ///< `inner` is captured in mode `mode`, and launched `value` times
  kMistake,        ///< `value` is a Mistake
  kReset,          ///< the primary context of GPU `value`; what it held is made anew
  kKernel,         ///< of the program's own: changes one region by another (kernel.h)
  kFork,           ///< a child that does as ForkEnd `value` says, and is waited for
};

/// What programs are made for.
struct Machine {
  int gpus = 4;  ///< at least 2
  /// The emulated driver refuses what the driver documents as undefined; a real one may crash.
  bool refuses_what_is_undefined = true;
};

struct Operation {
  Step step;
  int stream = -1;
  int region = -1;
  int event = -1;
  int other_event = -1;
  uint64_t value = 0;
  CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
  Copy copy{};
  std::vector<Operation> inner{};
};

struct Program {
  uint64_t seed = 0;
  Machine machine;
  int threads = 1;
  std::vector<Region> regions;
  std::vector<Stream> streams;
  std::vector<int> event_gpus;  ///< each event is recorded once, in a stream of this GPU
  std::vector<std::vector<std::vector<Operation>>> phases;  ///< [phase][thread]
};

Program make_program(uint64_t seed, const Machine& machine);

/// For people: one line.
std::string describe(const Region& region);
std::string describe(const Stream& stream);
std::string describe(const Operation& operation);

}  // namespace braid::stress
