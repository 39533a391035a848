// Everything that exists in the emulated server, under one lock. Made by cuInit, never destroyed:
// programs call the driver from exit handlers.
#pragma once

#include <cuda.h>

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <vector>

#include "base/status.h"
#include "emulator/faults.h"
#include "emulator/model/handles.h"
#include "emulator/model/machine.h"
#include "emulator/model/memory.h"
#include "emulator/model/objects.h"
#include "emulator/model/pools.h"
#include "emulator/model/presence.h"
#include "emulator/model/scheduler.h"
#include "emulator/model/variant.h"
#include "emulator/model/virtual_clock.h"
#include "emulator/model/watches.h"
#include "topology/server.h"

namespace braid::emulator {

using Lock = std::unique_lock<std::mutex>;

/// A host function that is due; the helper thread runs it.
struct HostCall {
  std::function<void()> function;
  OpPtr op;
};

class World {
 public:
  /// `visible` maps CUDA ordinals to the server's GPUs (CUDA_VISIBLE_DEVICES).
  static Result<std::unique_ptr<World>> create(topology::Server server, std::vector<int> visible,
                                               const std::string& fault_json);

  std::mutex mutex;
  std::condition_variable changed;      ///< a waiting thread should look again
  std::condition_variable helper_wake;  ///< there may be work for the helper thread

  const topology::Server server;
  const std::vector<int> visible;
  const Variant variant = read_variant();
  Machine machine;
  Simulation& simulation;
  Memory memory;
  Pools pools;
  Watches watches;
  VirtualClock clock;
  Scheduler scheduler;
  Faults faults;
  Presence presence;

  HandleTable<CUcontext, Context> contexts;
  HandleTable<CUstream, Stream, Reuse::kYes> streams;
  HandleTable<CUevent, Event> events;
  HandleTable<CUmodule, Module> modules;
  HandleTable<CUfunction, Function> functions;
  HandleTable<CUgraph, Graph> graphs;
  HandleTable<CUgraphNode, GraphNode> graph_nodes;
  HandleTable<CUgraphExec, GraphExec> graph_execs;
  std::vector<ContextPtr> primaries;  ///< by CUDA ordinal; alive when retained
  std::vector<CapturePtr> captures;   ///< those being recorded

  std::vector<HostCall> host_calls;  ///< waiting for the helper thread
  int host_calls_running = 0;        ///< due or running: virtual time stands still for them
  bool host_call_is_slow = false;    ///< it has been waited for long enough
  bool helper_started = false;
  bool helper_idle = false;
  uint64_t next_id = 1;           ///< for contexts, streams and captures
  CUresult error = CUDA_SUCCESS;  ///< sticky: of the whole process

  int device_count() const { return static_cast<int>(visible.size()); }
  const topology::Gpu& gpu_of(int device) const { return server.gpus[visible[device]]; }

  /// Brings the simulation up to the calling thread's virtual time and looks at host memory. Waits
  /// a limited time for a running host function, which may want a mutex that the caller holds.
  void catch_up(Lock& lock);
  /// True if virtual time must not move: a host function is due or runs.
  bool stands_still() const { return host_calls_running > 0; }

  /// Runs the simulation until `reached`. If nothing can happen by itself, waits for the program
  /// (another thread, or a value in host memory).
  void wait(Lock& lock, const std::function<bool()>& reached);
  /// Waits until the context's lock is free. True: it has waited, and objects that were looked up
  /// before may have gone.
  bool wait_for_lock(Lock& lock, const Context& context);
  /// The same for the end of work, with the cost of synchronising.
  void wait_for(Lock& lock, const CompletionPtr& end);

  /// Runs the simulation until `reached`, or until only the program can make anything happen.
  void run_out(Lock& lock, const std::function<bool()>& reached);

  /// True if pending work could go on without a call of the program.
  bool has_pending();

  /// A GPU fault in the context: abandons the work of every context. Each later call returns `why`,
  /// even if a context is made anew: such a process must start again. Seen on 4xH200 (driver 580),
  /// with and without peer access; there it takes 0.2 to 0.6 s until all contexts return it.
  void poison(Context& context, CUresult why);

  /// A new stream of the context, which has no handle yet.
  StreamPtr make_stream(const ContextPtr& context, unsigned flags = CU_STREAM_DEFAULT,
                        int priority = 0);

  /// Device work has written these bytes.
  void wrote(uint64_t address, uint64_t size_bytes) { watches.changed(address, size_bytes); }

 private:
  World(topology::Server all, std::vector<int> shown, topology::Faults wanted);
  void give_up(Context& context, CUresult why);
  /// False: only the program can make anything happen.
  bool step_without_program(Lock& lock);
};

}  // namespace braid::emulator
