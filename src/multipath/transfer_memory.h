// What the transfers of one GPU are made in: their states, whose counters lie in the GPU's memory
// and whose words in pinned host memory; the lists of their batches; the records of the GPU's link.
// And how kernels are launched and waited for there.
//
// Not thread-safe: its owner's lock guards it.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>

#include "base/status.h"
#include "cuda/registered_memory.h"
#include "cuda/shared_memory.h"
#include "multipath/kernel_mover.h"
#include "multipath/list_ring.h"
#include "multipath/transfer_state.h"

namespace braid::multipath {

struct TransferMemory {
  /// Zeroed host memory that is registered for all GPUs; `what` names it in errors.
  using Pin = std::function<Result<std::unique_ptr<cuda::RegisteredMemory>>(
      uint64_t size_bytes, const std::string& what)>;

  /// In the current context, of `gpu` or one of `others`; all of them reach the memory. After an
  /// error, some of it is there.
  Status open(const cuda::Driver& driver, CUdevice gpu, std::span<const int> others,
              const Pin& pin);
  bool is_open() const { return transfers != nullptr; }
  DirectPath direct(const PullKernels& kernels) const {
    return {kernels, link, launch_priority, wait_flags};
  }
  /// Frees all that is there; nothing uses it any more.
  void free();
  /// Something may yet use it, and nobody can say: the pages stay.
  void abandon();

  std::unique_ptr<cuda::SharedMemory> counters;
  std::unique_ptr<cuda::RegisteredMemory> words;
  std::unique_ptr<TransferPool> transfers;  // in the two above
  std::unique_ptr<ListRing> lists;
  LinkState link;  // behind the counters
  int launch_priority = 0;
  unsigned wait_flags = CU_STREAM_WAIT_VALUE_GEQ;
};

}  // namespace braid::multipath
