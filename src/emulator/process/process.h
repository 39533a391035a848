// The emulated driver's life in this process: cuInit, fork, exit, and the state of each thread.
#pragma once

#include <cuda.h>

#include <cstdint>
#include <vector>

#include "emulator/model/world.h"

namespace braid::emulator {

/// cuInit: reads BRAID_SERVER, CUDA_VISIBLE_DEVICES, BRAID_FAULTS and the variables of
/// model/variant.h, and makes the world, once.
CUresult init_process();

/// The world; null before cuInit has succeeded, and in a child that was forked after it.
World* world_of_process();

/// The state of a thread: its stack of current contexts, its capture mode.
struct ThreadState {
  uint64_t number = 0;  ///< from 1; never reused
  std::vector<CUcontext> contexts;
  CUstreamCaptureMode capture_mode = CU_STREAM_CAPTURE_MODE_GLOBAL;
  bool in_host_function = false;
};
ThreadState& this_thread();

/// Starts the helper thread if it does not run. Call it before work is first enqueued.
void start_helper(World& world);

/// True once the process is exiting: the helper thread leaves the world alone.
bool process_is_exiting();

}  // namespace braid::emulator
