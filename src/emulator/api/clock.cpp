// The virtual clock as braid's driver table finds it (cuda/driver.h). What it means is said in
// base/clock.h. Not entry points of CUDA's: they cost no virtual time and are no driver calls.
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <thread>

#include "emulator/process/process.h"

namespace braid::emulator {
namespace {

constexpr Time kPicosecondsPerNs = 1000;
// How often a sleeper looks whether the process ends, which ends its virtual time.
constexpr std::chrono::milliseconds kExitLook{10};

uint64_t now_ns(World& world) {
  Lock lock(world.mutex);
  world.clock.take_up();
  const bool holds = world.clock.calling_thread_holds();
  const Presence::Visit visit(world.presence, !holds);
  Time now = world.clock.now();
  if (!holds) {
    world.wait_while_held(lock);
    // While others waited, time has passed for this thread too.
    now = std::max(world.clock.now(), world.simulation.now());
  }
  return static_cast<uint64_t>(now / kPicosecondsPerNs);
}

void hold(World& world) {
  const Lock lock(world.mutex);
  world.clock.hold();
}

void release(World& world) {
  const Lock lock(world.mutex);
  world.clock.join();
  world.publish_host_memory();
  world.clock.release();
  world.time_goes_on();
}

void sleep(World& world, uint64_t duration_ns) {
  Lock lock(world.mutex);
  start_helper(world);
  world.clock.join();
  world.publish_host_memory();
  const auto longest = static_cast<uint64_t>(kForever / kPicosecondsPerNs);
  const auto sleeper = world.clock.fall_asleep(static_cast<Time>(std::min(duration_ns, longest)) *
                                               kPicosecondsPerNs);
  world.time_goes_on();
  while (!sleeper->awake && !process_is_exiting()) sleeper->woken.wait_for(lock, kExitLook);
}

}  // namespace
}  // namespace braid::emulator

using namespace braid::emulator;

// Without a server, before cuInit and in a forked child, there is no virtual time and no work.
extern "C" void braidClockNow(uint64_t* ns) {
  World* world = world_of_process();
  *ns = world != nullptr ? now_ns(*world) : 0;
}

extern "C" void braidClockHold() {
  if (World* world = world_of_process()) hold(*world);
}

extern "C" void braidClockRelease() {
  if (World* world = world_of_process()) release(*world);
}

extern "C" void braidClockSleep(uint64_t duration_ns) {
  if (World* world = world_of_process()) return sleep(*world, duration_ns);
  std::this_thread::sleep_for(std::chrono::nanoseconds(duration_ns));
}
