// The emulated server's time is its simulation's.
#pragma once

#include "simulation/time.h"

namespace braid::emulator {

using simulation::from_ns;
using simulation::from_us;
using simulation::kForever;
using simulation::Time;
using simulation::to_ns;
using simulation::to_us;

}  // namespace braid::emulator
