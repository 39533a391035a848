// Streams that wait for values in memory, and write them.
#include <cstring>
#include <utility>

#include "emulator/ops/fault.h"
#include "emulator/ops/ops.h"

namespace braid::emulator {
namespace {

// Null when the memory has gone meanwhile, or the stream's GPU may not touch it.
Allocation* find_word(World& world, const OpPtr& op, Word word, Access access) {
  return find_for_engine(world.memory, device_of(op), word.address, word.width_bytes, access);
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
    const Allocation* allocation = find_word(world, op, word, Access::kRead);
    if (allocation == nullptr) {
      fault(world, op);
      return true;
    }
    const std::byte* at = allocation->bytes_at(word.address);
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
    const Allocation* allocation = find_word(world, op, word, Access::kRead);
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
      const Allocation* allocation = find_word(world, op, word, Access::kWrite);
      if (allocation == nullptr) return fault(world, op);
      store(allocation->bytes_at(word.address), word.width_bytes, value);
      world.wrote(word.address, word.width_bytes);
      world.scheduler.finish(op);
    });
  });
}

}  // namespace braid::emulator
