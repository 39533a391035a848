#include "emulator/ops/fault.h"

#include "emulator/ops/rows.h"

namespace braid::emulator {

void fault(World& world, const OpPtr& op) {
  const StreamPtr stream = op->stream.lock();
  const ContextPtr context = stream != nullptr ? stream->context.lock() : nullptr;
  if (context != nullptr) world.poison(*context, CUDA_ERROR_ILLEGAL_ADDRESS);
}

int device_of(const OpPtr& op) {
  const StreamPtr stream = op->stream.lock();
  const ContextPtr context = stream != nullptr ? stream->context.lock() : nullptr;
  return context != nullptr ? context->device : -1;
}

bool may_touch(World& world, const OpPtr& op, const CopyEnd& end, const Extent& extent,
               Access access) {
  if (end.pageable()) return true;
  const int device = end.through >= 0 ? end.through : device_of(op);
  const Allocation* allocation =
      find_for_engine(world.memory, device, end.address, span_bytes(end, extent), access);
  return allocation != nullptr && allocation->buffer_id == end.buffer_id;
}

}  // namespace braid::emulator
