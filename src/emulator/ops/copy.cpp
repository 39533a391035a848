// Copies and fills: wait for a copy engine, start, let the bytes flow, and move them when the last
// has arrived.
#include <cstring>
#include <utility>

#include "emulator/ops/ops.h"

namespace braid::emulator {
namespace {

// The allocation is still the one that the call saw, and the range may be touched.
bool may_touch(World& world, const OpPtr& op, const CopyEnd& end, uint64_t size_bytes,
               Access access) {
  if (end.pageable()) return true;
  const int device = end.through >= 0 ? end.through : device_of(op);
  const Allocation* allocation =
      find_for_engine(world.memory, device, end.address, size_bytes, access);
  return allocation != nullptr && allocation->buffer_id == end.buffer_id;
}

bool may_move(World& world, const OpPtr& op, const Copy& copy) {
  const bool readable =
      copy.staged != nullptr || may_touch(world, op, copy.source, copy.size_bytes, Access::kRead);
  return readable && may_touch(world, op, copy.destination, copy.size_bytes, Access::kWrite);
}

// The GPU of one end reaches the memory of the other.
bool reaches(World& world, const CopyEnd& from, const CopyEnd& to) {
  const Allocation* memory = world.memory.find(to.address);
  if (memory != nullptr && memory->grants != nullptr)
    return granted_to(*memory->grants, from.device) != CU_MEM_ACCESS_FLAGS_PROT_NONE;
  for (const auto& [handle, context] : world.contexts.all())
    if (context->device == from.device && context->peers.count(to.context) > 0) return true;
  return false;
}

// Two GPUs of which one reaches the other; otherwise the driver stages through host memory.
bool is_direct(World& world, const CopyEnd& source, const CopyEnd& destination) {
  if (!source.place.is_gpu() || !destination.place.is_gpu()) return true;
  if (source.place == destination.place) return true;
  return reaches(world, source, destination) || reaches(world, destination, source);
}

int class_of(World& world, const Copy& copy) {
  if (copy.source.pageable() || copy.destination.pageable())
    return world.machine.pageable_class(copy.source.place, copy.destination.place);
  return world.machine.copy_class(copy.source.place, copy.destination.place,
                                  is_direct(world, copy.source, copy.destination));
}

void move_bytes(World& world, const OpPtr& op, const Copy& copy) {
  if (op->cancelled) return;
  if (!may_move(world, op, copy)) return fault(world, op);
  const std::byte* from = copy.staged != nullptr ? copy.staged.get() : copy.source.bytes;
  std::memmove(copy.destination.bytes, from, copy.size_bytes);
  world.wrote(copy.destination.address, copy.size_bytes);
}

// Takes an engine for the time of `size_bytes` on `share_class`, then runs `land`.
void occupy_engine(World& world, Slots& engine, int share_class, uint64_t size_bytes,
                   std::function<void()> land) {
  engine.take(1, [&world, &engine, share_class, size_bytes, land = std::move(land)] {
    world.simulation.after_us(world.server.costs.copy_start_us.value,
                              [&world, &engine, share_class, size_bytes, land] {
                                world.simulation.flow(share_class, size_bytes, [&engine, land] {
                                  land();
                                  engine.give_back(1);
                                });
                              });
  });
}

}  // namespace

CompletionPtr enqueue_copy(World& world, const StreamPtr& stream, Copy copy) {
  const int share_class = class_of(world, copy);
  return world.scheduler.enqueue(
      stream, [&world, copy = std::move(copy), share_class](const OpPtr& op) {
        if (!may_move(world, op, copy)) return fault(world, op);
        const auto land = [&world, copy, op] {
          move_bytes(world, op, copy);
          world.scheduler.finish(op);
        };
        if (!copy.source.place.is_gpu() && !copy.destination.place.is_gpu())
          return world.simulation.flow(share_class, copy.size_bytes, land);
        occupy_engine(world, world.machine.engine(copy.source.place, copy.destination.place),
                      share_class, copy.size_bytes, land);
      });
}

namespace {

void fill_bytes(std::byte* at, uint32_t value, unsigned width_bytes, uint64_t count) {
  if (width_bytes == 1) {
    std::memset(at, static_cast<int>(value & 0xff), count);
    return;
  }
  for (uint64_t i = 0; i < count; ++i) std::memcpy(at + i * width_bytes, &value, width_bytes);
}

}  // namespace

CompletionPtr enqueue_fill(World& world, const StreamPtr& stream, CopyEnd destination,
                           uint32_t value, unsigned width_bytes, uint64_t count) {
  const uint64_t size_bytes = count * width_bytes;
  return world.scheduler.enqueue(stream, [&world, destination, value, width_bytes, count,
                                          size_bytes](const OpPtr& op) {
    if (!may_touch(world, op, destination, size_bytes, Access::kWrite)) return fault(world, op);
    // A memset is a small kernel or an engine's fill; either way it is bound by device memory.
    const int share_class = world.machine.copy_class(destination.place, destination.place, true);
    world.simulation.after_us(world.server.costs.copy_start_us.value, [=, &world] {
      world.simulation.flow(share_class, size_bytes, [=, &world] {
        if (!op->cancelled && !may_touch(world, op, destination, size_bytes, Access::kWrite))
          fault(world, op);
        if (op->cancelled) return;
        fill_bytes(destination.bytes, value, width_bytes, count);
        world.wrote(destination.address, size_bytes);
        world.scheduler.finish(op);
      });
    });
  });
}

}  // namespace braid::emulator
