// The kinds of work a stream can hold. Each function enqueues one op and returns its end; arguments
// have been checked by the entry points. What an op finds out only when it runs (memory freed
// meanwhile, memory a kernel may not touch) poisons the stream's context, as a GPU fault does.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "cuda/kernels/twin.h"
#include "emulator/model/world.h"

namespace braid::emulator {

/// One end of a copy.
struct CopyEnd {
  uint64_t address = 0;
  std::byte* bytes = nullptr;  ///< where the CPU finds the first byte
  Place place = Place::host(0);
  uint64_t context = 0;      ///< of the allocation; 0: pageable
  uint64_t buffer_id = 0;    ///< of the allocation; 0: pageable
  bool sync_memops = false;  ///< CU_POINTER_ATTRIBUTE_SYNC_MEMOPS: the host waits for the copy
  bool pageable() const { return buffer_id == 0; }
};

struct Copy {
  CopyEnd source;
  CopyEnd destination;
  uint64_t size_bytes = 0;
  /// The bytes, when they were staged at the call; then `source` is not read again.
  std::shared_ptr<std::byte[]> staged;
};

CompletionPtr enqueue_copy(World& world, const StreamPtr& stream, Copy copy);

/// Writes `count` elements of `width_bytes` (1, 2 or 4), all equal to `value`.
CompletionPtr enqueue_fill(World& world, const StreamPtr& stream, CopyEnd destination,
                           uint32_t value, unsigned width_bytes, uint64_t count);

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
/// Ends when `other` has, and the stream has seen it; `from_device` is where it happens.
CompletionPtr enqueue_wait(World& world, const StreamPtr& stream, CompletionPtr other,
                           int from_device);
CompletionPtr enqueue_host_call(World& world, const StreamPtr& stream,
                                std::function<void()> function);

/// All nodes of the graph, each after those it comes after, as one piece of work of the stream; not
/// before `previous`, which may be null, has ended. The nodes' contexts are alive.
CompletionPtr enqueue_graph(World& world, const StreamPtr& stream, const Graph& graph,
                            CompletionPtr previous);

struct Launch {
  const cuda::Twin* twin = nullptr;
  std::vector<std::byte> args;
  uint32_t blocks = 1;
  int threads_per_block = 1;
};

CompletionPtr enqueue_kernel(World& world, const StreamPtr& stream, Launch launch);

}  // namespace braid::emulator
