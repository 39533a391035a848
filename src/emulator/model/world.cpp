#include "emulator/model/world.h"

#include <chrono>
#include <utility>

namespace braid::emulator {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;

// A CPU that writes a value a stream waits for is noticed within this.
constexpr microseconds kHostMemoryLook{50};
constexpr milliseconds kHostFunctionPatience{20};
// Other threads get in between after this many events.
constexpr int kEventsPerTurn = 4096;

}  // namespace

World::World(topology::Server all, std::vector<int> shown)
    : server(std::move(all)),
      visible(std::move(shown)),
      machine(server),
      simulation(machine.simulation()),
      memory(server),
      pools(visible),
      scheduler(simulation) {
  for (int device = 0; device < device_count(); ++device) {
    auto context = std::make_shared<Context>();
    context->device = device;
    context->gpu = visible[device];
    context->handle = contexts.add(context);
    primaries.push_back(std::move(context));
  }
}

Result<std::unique_ptr<World>> World::create(topology::Server server, std::vector<int> visible,
                                             const std::string& fault_json) {
  std::unique_ptr<World> world(new World(std::move(server), std::move(visible)));
  const auto add = [&](const std::string& json, const char* origin) {
    return world->faults.add(json, origin, world->server, world->machine);
  };
  if (Status status = add(world->server.faults_json, "the profile's faults"); !status.ok())
    return status;
  if (Status status = add(fault_json, "BRAID_FAULTS"); !status.ok()) return status;
  return world;
}

void World::catch_up(Lock& lock) {
  if (host_calls_running == 0) host_call_is_slow = false;
  if (host_calls_running > 0 && !host_call_is_slow)
    host_call_is_slow =
        !changed.wait_for(lock, kHostFunctionPatience, [&] { return host_calls_running == 0; });
  while (host_calls_running == 0 && simulation.step(scheduler.host_now())) {
  }
  if (host_calls_running == 0) simulation.advance_clock(scheduler.host_now());
  watches.look_at_host_memory();
}

void World::wait(Lock& lock, const std::function<bool()>& reached) {
  int turn = 0;
  while (!reached()) {
    watches.look_at_host_memory();
    if (host_calls_running > 0) {
      changed.wait_for(lock, milliseconds(1));
    } else if (simulation.step(kForever)) {
      if (++turn % kEventsPerTurn == 0) {
        lock.unlock();
        lock.lock();
      }
    } else {
      changed.wait_for(lock, kHostMemoryLook);
    }
  }
}

void World::wait_for(Lock& lock, const CompletionPtr& end) {
  if (end == nullptr) return;
  wait(lock, [&] { return end->done(); });
  scheduler.wait_until(end->when() + from_us(server.costs.synchronize_us.value));
}

bool World::run_out(Lock& lock, const std::function<bool()>& reached) {
  while (!reached()) {
    watches.look_at_host_memory();
    if (host_calls_running > 0)
      changed.wait_for(lock, milliseconds(1));
    else if (!simulation.step(kForever))
      return reached();
  }
  return true;
}

bool World::has_pending() {
  return simulation.next_time() != kForever || watches.any_on_host_memory();
}

void World::poison(Context& context, CUresult error) {
  if (context.error == CUDA_SUCCESS) context.error = error;
  scheduler.cancel_all(context);
  changed.notify_all();
}

}  // namespace braid::emulator
