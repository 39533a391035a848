// Copies of pageable host memory: staged through pinned buffers by a few threads, and sent over
// all paths. Start reading staging/ here.
//
// A copy is cut into chunks (chunks.h). To the device: the thread pool copies a chunk into a slot
// of a staging ring while the chunks before it travel. The engine is offered each chunk as a pinned
// transfer of its own; if it declines, the driver copies the chunk. To the host: the chunks are
// requested ahead of time, and the thread pool copies each out of its slot when it has landed.
// Meanwhile it makes the missing pages of the destination (fresh_pages.h).
//
// The call returns as CUDA documents it ("API synchronization behavior"), or later. An asynchronous
// copy to the device returns when the source has been read; any copy to the host when all bytes
// have arrived. By the documentation a synchronous copy to the device may return while the last
// bytes are on their way. But programs use them from other streams at once, so it returns when they
// have arrived. All bytes travel in the order of the caller's stream.
//
// The driver copies memory that is not mapped, in streams that record graphs, and when there is no
// ring. If the driver refuses a step, its own copy takes the bytes that are not on their way yet,
// and gives the answer of the call. (If it refuses the gate of a chunk, the call returns that
// error, as for pinned memory.)
//
// Threads: any. Source: none in the paper, which accelerates pinned memory only.
#pragma once

#include <memory>
#include <mutex>
#include <optional>

#include "base/options.h"
#include "cuda/driver.h"
#include "multipath/staging/ring_pool.h"
#include "multipath/staging/thread_pool.h"
#include "multipath/submitter.h"
#include "multipath/transfer.h"

namespace braid::multipath::staging {

class Stager {
 public:
  /// True if `batch`, which the engine has declined, may be pageable, and no other reason forbids
  /// braid to touch the stream.
  static bool may_take(const Batch& batch, Verdict declined);

  /// Number of threads that copy beside the calling one; 0: pageable copies stay native.
  static int threads_for(const Options& options);
  /// Smaller pageable copies stay native; UINT64_MAX when all do.
  static uint64_t least_bytes(const Options& options);

  /// Starts no thread and pins nothing before the first staged copy. `submitter` must outlive it.
  Stager(const cuda::Driver& driver, const Options& options, Submitter& submitter);

  /// The answer of the call that asked for this copy; nothing if the copy is the driver's, and then
  /// no byte has moved. May wait, and the first time in a context allocate.
  std::optional<Staged> copy(const Batch& copy, bool is_synchronous);

  /// Call it before the context ends.
  void forget_context(CUcontext context, ContextRegistry::End how);

  /// No copy may be under way.
  void close();

 private:
  struct Chunk;
  struct Window;
  class Carriers;

  bool is_staged(const Batch& copy) const;
  ThreadPool* pool();
  static Chunk next_chunk(const Batch& copy, uint64_t offset, int index);
  uint64_t send(Ring& ring, const Batch& copy, Carriers& carriers);
  uint64_t fetch(Ring& ring, const Batch& copy, Carriers& carriers);
  bool ask_ahead(Ring& ring, const Batch& copy, Window& window, Carriers& carriers);
  bool enqueue(Ring& ring, const Batch& copy, const Chunk& chunk, Carriers& carriers) const;
  CUresult finish_natively(Ring& ring, const Batch& rest) const;

  const cuda::Driver& driver_;
  const UsableCpus& cpus_;
  const int threads_;
  const uint64_t least_bytes_;
  Submitter& submitter_;
  std::once_flag pool_made_;
  std::unique_ptr<ThreadPool> pool_;
  RingPool rings_;
};

}  // namespace braid::multipath::staging
