#include "emulator/model/world.h"

#include <algorithm>
#include <chrono>
#include <utility>

namespace braid::emulator {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;

// A CPU that writes a value a stream waits for is noticed within this.
constexpr microseconds kHostMemoryLook{50};
constexpr milliseconds kHostFunctionPatience{20};
// While time stands still: who ends that says so, but patience runs out in silence.
constexpr milliseconds kRestingLook{1};
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
      clock(simulation),
      scheduler(simulation, clock) {
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

void World::catch_up(Lock& lock, bool asks) {
  if (clock.calling_thread_holds()) return;
  if (host_calls_running == 0) host_call_is_slow = false;
  if (host_calls_running > 0 && !host_call_is_slow)
    host_call_is_slow =
        !changed.wait_for(lock, kHostFunctionPatience, [&] { return host_calls_running == 0; });
  do {
    if (asks) wait_while_held(lock);
    while (!stands_still() && simulation.step(clock.now())) {
    }
  } while (asks && clock.stands_still());
  if (!stands_still()) simulation.advance_clock(clock.now());
  look_at_host_memory();
}

void World::wait_while_held(Lock& lock) {
  while (clock.stands_still()) changed.wait_for(lock, kRestingLook);
}

void World::publish_host_memory() {
  if (!watches.any_on_host_memory()) return;
  published_ = std::max(published_, clock.now());
  simulation.at(clock.now(), [this] { watches.look_at_host_memory(); });
}

// What a thread stores while it holds the clock is not seen before its time, which it publishes.
void World::look_at_host_memory() {
  if (!clock.stands_still() && simulation.now() >= published_) watches.look_at_host_memory();
}

void World::time_goes_on() {
  changed.notify_all();
  helper_wake.notify_all();
}

void World::run_until(Lock& lock, const std::function<bool()>& reached) {
  int turn = 0;
  while (!reached()) {
    look_at_host_memory();
    if (stands_still()) {
      changed.wait_for(lock, kRestingLook);
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

void World::without_hold(const std::function<void()>& run) {
  const bool held = clock.let_go();
  if (held) time_goes_on();
  run();
  if (!held) return;
  clock.hold_again();
  clock.wait_until(simulation.now());
}

void World::wait(Lock& lock, const std::function<bool()>& reached) {
  without_hold([&] { run_until(lock, reached); });
}

bool World::wait_for_lock(Lock& lock, const Context& context) {
  if (!context.locked) return false;
  wait(lock, [&] { return !context.locked; });
  return true;
}

void World::wait_for(Lock& lock, const CompletionPtr& end) {
  if (end == nullptr) return;
  const bool held = clock.let_go();
  if (held) {
    end->then([this] { clock.hold_again(); });  // before anything else happens
    time_goes_on();
  }
  run_until(lock, [&] { return end->done(); });
  clock.wait_until(end->when() + from_us(server.costs.synchronize_us.value));
}

bool World::step_without_program(Lock& lock) {
  look_at_host_memory();
  if (stands_still())
    changed.wait_for(lock, kRestingLook);
  else if (simulation.next_time() == kForever || simulation.queued_only(clock.sleepers()))
    return false;
  else
    simulation.step(kForever);
  return true;
}

bool World::run_out(Lock& lock, const std::function<bool()>& reached) {
  bool is_reached = false;
  without_hold([&] {
    bool goes_on = true;
    while (!(is_reached = reached()) && goes_on) goes_on = step_without_program(lock);
  });
  return is_reached;
}

bool World::has_pending() {
  return simulation.next_time() != kForever || watches.any_on_host_memory();
}

void World::give_up(Context& context, CUresult why) {
  if (context.error == CUDA_SUCCESS) context.error = why;
  scheduler.cancel_all(context);
}

void World::poison(Context& context, CUresult why) {
  if (faults.contexts_fail_alone()) {
    give_up(context, why);
  } else {
    if (error == CUDA_SUCCESS) error = why;
    for (const auto& [handle, each] : contexts.all())
      if (each->alive) give_up(*each, why);
  }
  changed.notify_all();
}

}  // namespace braid::emulator
