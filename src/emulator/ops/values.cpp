// Streams that wait for values in memory, and write them.
#include <cstring>
#include <utility>

#include "emulator/ops/fault.h"
#include "emulator/ops/ops.h"

namespace braid::emulator {
namespace {

// Null when the memory has gone meanwhile.
std::byte* bytes_of(World& world, Word word) {
  const Allocation* allocation = world.memory.find(word.address);
  const bool whole = allocation != nullptr && allocation->holds(word.address, word.width_bytes);
  return whole ? allocation->bytes_at(word.address) : nullptr;
}

// The CPU may write host memory at the same time, so the word is read in one piece.
uint64_t load(const std::byte* at, unsigned width_bytes) {
  if (width_bytes == 8)
    return __atomic_load_n(reinterpret_cast<const uint64_t*>(at), __ATOMIC_ACQUIRE);
  return __atomic_load_n(reinterpret_cast<const uint32_t*>(at), __ATOMIC_ACQUIRE);
}

void store(std::byte* at, unsigned width_bytes, uint64_t value) {
  if (width_bytes == 8)
    __atomic_store_n(reinterpret_cast<uint64_t*>(at), value, __ATOMIC_RELEASE);
  else
    __atomic_store_n(reinterpret_cast<uint32_t*>(at), static_cast<uint32_t>(value),
                     __ATOMIC_RELEASE);
}

// The comparisons of CUstreamWaitValue_flags; GEQ is cyclic.
bool satisfied(uint64_t found, uint64_t value, unsigned width_bytes, unsigned condition) {
  const uint64_t mask = width_bytes == 8 ? ~uint64_t{0} : 0xffffffffu;
  const uint64_t distance = (found - value) & mask;
  switch (condition) {
    case CU_STREAM_WAIT_VALUE_GEQ: return (distance & ~(mask >> 1)) == 0;
    case CU_STREAM_WAIT_VALUE_EQ: return distance == 0;
    case CU_STREAM_WAIT_VALUE_AND: return (found & value & mask) != 0;
    default: return (~(found | value) & mask) != 0;  // NOR
  }
}

void watch(World& world, const OpPtr& op, Word word, uint64_t value, unsigned condition,
           bool host_memory) {
  const uint64_t group = world.watches.new_group();
  op->on_cancel = [&world, group] { world.watches.drop(group); };
  world.watches.add(group, word.address, word.width_bytes, host_memory, [=, &world] {
    const std::byte* at = bytes_of(world, word);
    if (at == nullptr) {
      fault(world, op);
      return true;
    }
    if (!satisfied(load(at, word.width_bytes), value, word.width_bytes, condition)) return false;
    world.simulation.after_us(world.server.costs.wait_value_us.value,
                              [=, &world] { world.scheduler.finish(op); });
    return true;
  });
}

}  // namespace

CompletionPtr enqueue_wait_value(World& world, const StreamPtr& stream, Word word, uint64_t value,
                                 unsigned condition) {
  return world.scheduler.enqueue(stream, [=, &world](const OpPtr& op) {
    const Allocation* allocation = world.memory.find(word.address);
    if (allocation == nullptr) return fault(world, op);
    const std::byte* at = allocation->bytes_at(word.address);
    if (satisfied(load(at, word.width_bytes), value, word.width_bytes, condition))
      return world.scheduler.finish(op);
    watch(world, op, word, value, condition, allocation->is_host());
  });
}

CompletionPtr enqueue_write_value(World& world, const StreamPtr& stream, Word word,
                                  uint64_t value) {
  return world.scheduler.enqueue(stream, [=, &world](const OpPtr& op) {
    world.simulation.after_us(world.server.costs.write_value_us.value, [=, &world] {
      if (op->cancelled) return;
      std::byte* at = bytes_of(world, word);
      if (at == nullptr) return fault(world, op);
      store(at, word.width_bytes, value);
      world.wrote(word.address, word.width_bytes);
      world.scheduler.finish(op);
    });
  });
}

}  // namespace braid::emulator
