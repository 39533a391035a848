// Plain memory that the program gives to cuMemFreeAsync behind a transfer by copy engines. The
// driver refuses later calls that name such memory, though its stream has yet to free it, and copy
// engines are given their slices one by one: so the free itself is put off until its stream has
// come to where it was asked for. Until then the memory is what it was.
//
// Nothing waits. The time is looked at when somebody asks (`release`): what is late stays allocated
// until then. Threads: any. Errors: what cannot be put off is the caller's to free.
#pragma once

#include <atomic>
#include <mutex>
#include <vector>

#include "cuda/driver.h"

namespace braid::multipath {

class LateFrees {
 public:
  explicit LateFrees(const cuda::Driver& driver) : driver_(driver) {}
  /// Frees the rest in its streams' order. Nobody names the memory any more.
  ~LateFrees();
  LateFrees(const LateFrees&) = delete;
  LateFrees& operator=(const LateFrees&) = delete;

  /// To be freed once `stream` has passed this point; `context` is the memory's. Allocates an
  /// event.
  bool add(CUdeviceptr address, CUcontext context, CUstream stream);
  /// The memory is waiting to be freed: to free it again is an error.
  bool holds(CUdeviceptr address);
  /// Frees what can be by now. Costs a load when there is nothing; waits for nothing.
  void release() noexcept {
    if (count_.load(std::memory_order_relaxed) != 0) release_passed();
  }
  /// The context is about to end, and its memory with it.
  void forget_context(CUcontext context);

 private:
  struct Entry {
    CUdeviceptr address;
    CUcontext context;
    CUcontext of_stream;
    CUevent passed;  // null: its context has ended, and with it all that was to come before
  };

  void release_passed() noexcept;
  bool free_now(const Entry& entry, bool waits) const;

  const cuda::Driver& driver_;
  std::atomic<size_t> count_{0};
  std::mutex mutex_;
  std::vector<Entry> entries_;
};

}  // namespace braid::multipath
