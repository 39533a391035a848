// Work that moves nothing: markers, waits for other streams, host
// functions.
#include <utility>

#include "emulator/ops/ops.h"

namespace braid::emulator {

CompletionPtr enqueue_marker(World& world, const StreamPtr& stream) {
  return world.scheduler.enqueue(stream, [&world](const OpPtr& op) { world.scheduler.finish(op); });
}

CompletionPtr enqueue_wait(World& world, const StreamPtr& stream, CompletionPtr other,
                           int from_device) {
  const ContextPtr context = stream->context.lock();
  const bool same_gpu = context == nullptr || context->device == from_device;
  const topology::Costs& costs = world.server.costs;
  const double latency_us = same_gpu ? costs.event_wait_us.value : costs.peer_event_wait_us.value;
  return world.scheduler.enqueue(
      stream, [&world, other = std::move(other), latency_us](const OpPtr& op) {
        other->then([&world, other, latency_us, op] {
          world.simulation.at(other->when() + from_us(latency_us),
                              [&world, op] { world.scheduler.finish(op); });
        });
      });
}

CompletionPtr enqueue_host_call(World& world, const StreamPtr& stream,
                                std::function<void()> function) {
  return world.scheduler.enqueue(stream, [&world, function = std::move(function)](const OpPtr& op) {
    world.simulation.after_us(world.server.costs.host_function_us.value, [&world, function, op] {
      if (op->cancelled) return;
      world.host_calls.push_back({function, op});
      ++world.host_calls_running;
      world.helper_wake.notify_all();
    });
  });
}

}  // namespace braid::emulator
