// One fixed program that takes in everything braid does for a program: linear copies both ways,
// batches, rows and boxes, pageable memory, pools and mapped ranges, several streams and GPUs, and
// a context that is reset while copies are in flight. Small, since it runs once for every call of
// the driver that braid makes in it.
#pragma once

#include "stress/program.h"

namespace braid::faults {

stress::Program make_tour();

}  // namespace braid::faults
