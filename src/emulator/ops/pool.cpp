// Allocation and freeing in stream order. Addresses are given out at the call; between the two ops
// the memory may be touched, before and after it is a fault.
#include "emulator/ops/ops.h"

namespace braid::emulator {
namespace {

// The allocation may have been freed, and its address given to another, before the stream came
// here.
Allocation* find_again(World& world, uint64_t address, uint64_t buffer_id) {
  Allocation* found = world.memory.find(address);
  return found != nullptr && found->buffer_id == buffer_id ? found : nullptr;
}

}  // namespace

CompletionPtr enqueue_allocation(World& world, const StreamPtr& stream, Allocation& pooled) {
  const CompletionPtr end = enqueue_marker(world, stream);
  end->then([&world, address = pooled.address, id = pooled.buffer_id] {
    if (Allocation* allocation = find_again(world, address, id)) allocation->live = true;
  });
  return end;
}

// Also when the stream's work is given up: nobody else will free the memory.
CompletionPtr enqueue_free(World& world, const StreamPtr& stream, Allocation& allocation) {
  const CompletionPtr end = enqueue_marker(world, stream);
  end->then([&world, address = allocation.address, id = allocation.buffer_id] {
    if (Allocation* freed = find_again(world, address, id)) world.memory.remove(freed);
  });
  return end;
}

}  // namespace braid::emulator
