// The virtual time as braid's driver table finds it (cuda/driver.h). Not an entry point of CUDA's:
// it costs no virtual time and is no driver call.
#include <algorithm>
#include <cstdint>

#include "emulator/process/process.h"

namespace braid::emulator {
namespace {

uint64_t now_ns(World& world) {
  const Lock lock(world.mutex);
  const Presence::Visit visit(world.presence);
  // Work that was carried on, in silence or for another thread that waits, is ahead of the
  // program's own time.
  return to_ns(std::max(world.clock.now(), world.simulation.now()));
}

}  // namespace
}  // namespace braid::emulator

using namespace braid::emulator;

// Without a server, before cuInit and in a forked child, there is no virtual time.
extern "C" void braidClockNow(uint64_t* ns) {
  World* world = world_of_process();
  *ns = world != nullptr ? now_ns(*world) : 0;
}
