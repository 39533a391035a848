#include "emulator/ops/fault.h"

namespace braid::emulator {

void fault(World& world, const OpPtr& op) {
  const StreamPtr stream = op->stream.lock();
  const ContextPtr context = stream != nullptr ? stream->context.lock() : nullptr;
  if (context != nullptr) world.poison(*context, CUDA_ERROR_ILLEGAL_ADDRESS);
}

bool still_there(World& world, const CopyEnd& end) {
  if (end.pageable()) return true;
  const Allocation* allocation = world.memory.find(end.address);
  return allocation != nullptr && allocation->buffer_id == end.buffer_id;
}

}  // namespace braid::emulator
