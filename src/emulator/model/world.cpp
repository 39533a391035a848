#include "emulator/model/world.h"

#include <chrono>
#include <utility>

#include "base/try.h"

namespace braid::emulator {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;

// A CPU that writes a value a stream waits for is noticed within this.
constexpr microseconds kHostMemoryLook{50};
constexpr milliseconds kHostFunctionPatience{20};
// While time stands still: who ends that says so, but a context's lock is let go of in silence.
constexpr milliseconds kRestingLook{1};
// Other threads get in between after this many events.
constexpr int kEventsPerTurn = 4096;

}  // namespace

World::World(topology::Server all, std::vector<int> shown, topology::Faults wanted)
    : server(std::move(all)),
      visible(std::move(shown)),
      machine(server),
      simulation(machine.simulation()),
      memory(server),
      pools(visible),
      scheduler(simulation, clock),
      faults(std::move(wanted), machine) {
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
  topology::Faults faults;
  BRAID_TRY(topology::add_faults(server.faults_json, "the profile's faults", server, faults));
  BRAID_TRY(topology::add_faults(fault_json, "BRAID_FAULTS", server, faults));
  return std::unique_ptr<World>(  // owner: the pointer
      new World(std::move(server), std::move(visible), std::move(faults)));
}

StreamPtr World::make_stream(const ContextPtr& context, unsigned flags, int priority) {
  auto stream = std::make_shared<Stream>();
  stream->id = next_id++;
  stream->context = context;
  stream->flags = flags;
  stream->priority = priority;
  context->streams.push_back(stream);
  return stream;
}

void World::catch_up(Lock& lock) {
  if (!stands_still()) host_call_is_slow = false;
  if (stands_still() && !host_call_is_slow)
    host_call_is_slow =
        !changed.wait_for(lock, kHostFunctionPatience, [&] { return !stands_still(); });
  while (!stands_still() && simulation.step(clock.now())) {
  }
  if (!stands_still()) simulation.advance_clock(clock.now());
  watches.look_at_host_memory();
}

void World::wait(Lock& lock, const std::function<bool()>& reached) {
  int turn = 0;
  while (!reached()) {
    watches.look_at_host_memory();
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

bool World::wait_for_lock(Lock& lock, const Context& context) {
  if (!context.locked) return false;
  wait(lock, [&] { return !context.locked; });
  return true;
}

void World::wait_for(Lock& lock, const CompletionPtr& end) {
  if (end == nullptr) return;
  wait(lock, [&] { return end->done(); });
  clock.wait_until(end->when() + from_us(server.costs.synchronize_us.value));
}

bool World::step_without_program(Lock& lock) {
  watches.look_at_host_memory();
  if (!stands_still()) return simulation.step(kForever);
  changed.wait_for(lock, kRestingLook);
  return true;
}

void World::run_out(Lock& lock, const std::function<bool()>& reached) {
  bool goes_on = true;
  while (!reached() && goes_on) goes_on = step_without_program(lock);
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
