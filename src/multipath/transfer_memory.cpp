#include "multipath/transfer_memory.h"

#include <utility>

#include "base/try.h"

namespace braid::multipath {

Status TransferMemory::open(const cuda::Driver& driver, CUdevice gpu, std::span<const int> others,
                            const Pin& pin) {
  BRAID_LET(made,
            cuda::SharedMemory::open(driver, gpu, others,
                                     TransferPool::kBytes + LinkState::kSizeBytes, "transfers"));
  counters = std::move(made);
  BRAID_LET(pinned, pin(2 * TransferPool::kBytes, "the transfers' words"));
  words = std::move(pinned);
  BRAID_LET(ring, pin(ListRing::kSizeBytes, "the lists of batches"));
  lists = std::make_unique<ListRing>(std::move(ring));
  transfers = std::make_unique<TransferPool>(counters->address(), words->data());
  link = LinkState(counters->address() + TransferPool::kBytes);
  int lowest = 0;
  driver.cuCtxGetStreamPriorityRange(&lowest, &launch_priority);
  // The count of another GPU arrives behind the bytes it counts; where this one may reorder the
  // two, it offers a flush.
  if (others.empty()) return {};
  int can_flush = 0;
  driver.cuDeviceGetAttribute(&can_flush, CU_DEVICE_ATTRIBUTE_CAN_FLUSH_REMOTE_WRITES, gpu);
  if (can_flush != 0) wait_flags |= CU_STREAM_WAIT_VALUE_FLUSH;
  return {};
}

void TransferMemory::free() {
  transfers.reset();
  lists.reset();
  words.reset();
  counters.reset();
}

void TransferMemory::abandon() {
  if (lists != nullptr) lists->abandon();
  if (words != nullptr) words->abandon();
  if (counters != nullptr) counters->abandon();
}

}  // namespace braid::multipath
