// Memsets: bound by device memory, whether a small kernel or an engine carries them out.
#include <cstring>

#include "emulator/ops/fault.h"
#include "emulator/ops/rows.h"

namespace braid::emulator {
namespace {

void fill_row(std::byte* at, uint64_t width_bytes, uint32_t value, unsigned element_bytes) {
  if (element_bytes == 1) {
    std::memset(at, static_cast<int>(value & 0xff), width_bytes);
    return;
  }
  for (uint64_t i = 0; i < width_bytes; i += element_bytes)
    std::memcpy(at + i, &value, element_bytes);
}

}  // namespace

CompletionPtr enqueue_fill(World& world, const StreamPtr& stream, CopyEnd destination,
                           Extent extent, uint32_t value, unsigned element_bytes) {
  const int share_class =
      world.machine.copy_class(destination.place, destination.place, Machine::kNothing);
  const auto land = [=, &world](const OpPtr& op) {
    if (!op->cancelled && !may_touch(world, op, destination, extent, Access::kWrite))
      fault(world, op);
    if (op->cancelled) return;
    for_each_row(extent, [&](uint64_t layer, uint64_t row) {
      fill_row(row_of(destination, layer, row), extent.width_bytes, value, element_bytes);
    });
    world.wrote(destination.address, span_bytes(destination, extent));
    world.scheduler.finish(op);
  };
  return world.scheduler.enqueue(stream, [=, &world](const OpPtr& op) {
    if (!may_touch(world, op, destination, extent, Access::kWrite)) return fault(world, op);
    world.simulation.after_us(world.server.costs.copy_start_us.value, [=, &world] {
      world.simulation.flow(share_class, extent.size_bytes(), [land, op] { land(op); });
    });
  });
}

}  // namespace braid::emulator
