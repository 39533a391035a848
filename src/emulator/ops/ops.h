// The kinds of work that a stream can hold. Each function enqueues one op and returns its end; the
// entry points have checked the arguments. An error that an op finds only when it runs (memory
// freed meanwhile, memory that a kernel may not touch) is a GPU fault (World::poison).
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "cuda/kernels/twin.h"
#include "emulator/model/access.h"
#include "emulator/model/world.h"

namespace braid::emulator {

/// Rows of bytes, in layers. Linear work is one row.
struct Extent {
  uint64_t width_bytes = 0;
  uint64_t height = 1;
  uint64_t depth = 1;
  bool empty() const { return width_bytes == 0 || height == 0 || depth == 0; }
  uint64_t size_bytes() const { return width_bytes * height * depth; }
};

/// One end of a copy.
struct CopyEnd {
  uint64_t address = 0;
  std::byte* bytes = nullptr;  ///< the first byte, for the CPU
  uint64_t row_bytes = 0;      ///< from one row to the next, if there are several
  uint64_t layer_bytes = 0;    ///< the same of layers
  Place place = Place::host(0);
  uint64_t context = 0;      ///< of the allocation; 0: pageable, mapped or pooled
  int device = 0;            ///< CUDA ordinal that the allocation belongs to
  int through = -1;          ///< CUDA ordinal that touches it; -1: the stream's
  uint64_t buffer_id = 0;    ///< of the allocation; 0: pageable
  bool sync_memops = false;  ///< CU_POINTER_ATTRIBUTE_SYNC_MEMOPS: the host waits for the copy
  bool pageable() const { return buffer_id == 0; }
};

/// When a copy may read its source (CUmemcpySrcAccessOrder).
enum class SourceRead {
  kInStream,    ///< when everything before it in the stream has ended
  kDuringCall,  ///< out of order, and never after the call
  kAnyTime,     ///< out of order, until the copy ends
};

struct Copy {
  CopyEnd source;
  CopyEnd destination;
  Extent extent;
  SourceRead read = SourceRead::kInStream;
  /// The bytes, row after row without gaps, when they were read at the call.
  std::shared_ptr<std::byte[]> staged;
};

/// One op of at least one copy, none of them empty. They are in no order among each other.
CompletionPtr enqueue_copies(World& world, const StreamPtr& stream, std::vector<Copy> copies);

/// Fills the rows with elements of `element_bytes` (1, 2 or 4), all equal to `value`.
CompletionPtr enqueue_fill(World& world, const StreamPtr& stream, CopyEnd destination,
                           Extent extent, uint32_t value, unsigned element_bytes);

struct Word {
  uint64_t address = 0;
  unsigned width_bytes = 4;  ///< 4 or 8
};

/// `condition` is one of CU_STREAM_WAIT_VALUE_*.
CompletionPtr enqueue_wait_value(World& world, const StreamPtr& stream, Word word, uint64_t value,
                                 unsigned condition);
CompletionPtr enqueue_write_value(World& world, const StreamPtr& stream, Word word, uint64_t value);

/// Ends when everything before it in the stream has ended.
CompletionPtr enqueue_marker(World& world, const StreamPtr& stream);
/// Ends when `other` has ended and the stream has seen it; `from_device` is the device of `other`.
CompletionPtr enqueue_wait(World& world, const StreamPtr& stream, CompletionPtr other,
                           int from_device);
/// From now on the memory of an allocation from a pool is live.
CompletionPtr enqueue_allocation(World& world, const StreamPtr& stream, Allocation& pooled);
/// Frees device memory, from a pool or not, when the stream reaches the op.
CompletionPtr enqueue_free(World& world, const StreamPtr& stream, Allocation& allocation);

CompletionPtr enqueue_host_call(World& world, const StreamPtr& stream,
                                std::function<void()> function);

/// All nodes of the graph, each after its predecessors, as one piece of work of the stream. Starts
/// only after `previous`, which may be null, has ended. The nodes' contexts are alive.
CompletionPtr enqueue_graph(World& world, const StreamPtr& stream, const Graph& graph,
                            CompletionPtr previous);

struct Launch {
  const cuda::Twin* twin = nullptr;
  std::vector<std::byte> args;
  uint32_t blocks = 1;
  int threads_per_block = 1;
  std::optional<int> priority;  ///< of its blocks, if it is not the stream's
};

CompletionPtr enqueue_kernel(World& world, const StreamPtr& stream, Launch launch);

}  // namespace braid::emulator
