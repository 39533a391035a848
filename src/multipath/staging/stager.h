// Copies of pageable host memory: staged through pinned buffers by a few threads, and sent over
// all paths. Start reading staging/ here.
//
// A copy is cut into chunks (chunks.h). To the device: the thread pool copies a chunk into a slot
// of a staging ring while the chunks before it travel; each is offered to the engine as a pinned
// transfer of its own, and goes by the driver's copy when the engine declines. To the host: the
// chunks are asked for ahead of time, and the thread pool copies each out of its slot when it has
// landed; meanwhile it makes the pages for them that are missing (fresh_pages.h).
//
// When the call returns is as CUDA documents it ("API synchronization behavior"), or later: an
// asynchronous copy to the device when the source has been read; any copy to the host when all
// bytes have arrived. A synchronous copy to the device may by the documentation return while the
// last bytes are on their way, but programs use them from other streams at once: it returns when
// they have arrived. Everything travels in the order of the caller's stream.
//
// Memory that is not mapped, streams that record graphs, and copies for which there is no ring are
// the driver's. When the driver refuses a step, the bytes that are not on their way yet go by its
// own copy, whose answer is the answer.
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
  /// `batch`, which the engine has declined, may be pageable: other reasons rule that out, or that
  /// braid may touch the stream.
  static bool may_take(const Batch& batch, Verdict declined);

  /// That copy memory beside the thread that asks; 0: pageable copies stay native.
  static int threads_for(const Options& options);
  /// Smaller pageable copies stay native; UINT64_MAX when all do.
  static uint64_t least_bytes(const Options& options);

  /// Starts no thread and pins nothing before the first copy that is staged.
  /// `submitter` must outlive it.
  Stager(const cuda::Driver& driver, const Options& options, Submitter& submitter);

  /// The answer of the call that asked for this copy; nothing when the copy is the driver's, and
  /// then no byte has moved. May wait, and the first time in a context allocate.
  std::optional<Staged> copy(const Batch& copy, bool is_synchronous);

  /// Before the context ends: braid keeps nothing there.
  void forget_context(CUcontext context);

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
  bool enqueue(const Ring& ring, const Batch& copy, const Chunk& chunk, Carriers& carriers) const;
  CUresult finish_natively(Ring& ring, const Batch& rest) const;

  const cuda::Driver& driver_;
  const int threads_;
  const uint64_t least_bytes_;
  Submitter& submitter_;
  std::once_flag pool_made_;
  std::unique_ptr<ThreadPool> pool_;
  RingPool rings_;
};

}  // namespace braid::multipath::staging
