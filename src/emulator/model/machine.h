// The server's hardware for the simulation: the resources that a route crosses, the copy engines,
// and room on the multiprocessors. The world's lock covers all of it.
//
// Resources of the fair share: every link forward, backward and both ways together; and for every
// GPU, the rates at which its SMs can read and write host memory. If kernels of several contexts
// are on a GPU, each context has SMs of its own, slower by the number of contexts: a GPU runs
// contexts in turns, and turns (some 2 ms on H200) are modelled as infinitely short.
#pragma once

#include <deque>
#include <functional>
#include <map>
#include <tuple>
#include <vector>

#include "emulator/model/slices.h"
#include "emulator/model/time.h"
#include "simulation/simulation.h"
#include "simulation/slots.h"
#include "topology/server.h"

namespace braid::emulator {

using simulation::Flows;
using simulation::Simulation;
using simulation::Slots;

/// Where bytes lie: a GPU (its number) or a NUMA node's memory.
class Place {
 public:
  static Place gpu(int number) { return Place(number); }
  static Place host(int numa_node) { return Place(-1 - numa_node); }
  bool is_gpu() const { return code_ >= 0; }
  int number() const { return code_ >= 0 ? code_ : -1 - code_; }
  auto operator<=>(const Place&) const = default;

 private:
  explicit Place(int code) : code_(code) {}
  int code_;
};

class Machine {
 public:
  explicit Machine(const topology::Server& server);

  Simulation& simulation() { return simulation_; }

  /// The place that a copy's bytes pass through: one of these, or the number of a GPU, whose link
  /// to host memory and whose engine they use.
  static constexpr int kNothing = -1;
  static constexpr int kHostMemory = -2;  ///< between GPUs that do not reach each other

  /// Flow classes. A copy by a copy engine between two places.
  int copy_class(Place source, Place destination, int passes);
  /// The same from or to pageable memory: at the speed of the CPU thread that stages it.
  int pageable_class(Place source, Place destination, int passes);
  /// A kernel of the context is on the GPU until it ends. Returns the context's slice of the GPU,
  /// an argument of the kernel functions.
  int begin_kernel(int gpu, uint64_t context);
  void end_kernel(int gpu, uint64_t context);
  /// The factor by which a kernel's work takes longer.
  int slowdown(int gpu) const { return gpus_[gpu].slices.sharers(); }

  /// One thread block on `launcher` that loads from one place and stores to the other. A link's
  /// arbiter sees requesters, and a GPU's multiprocessors are one requester beside its copy
  /// engines. So any number of blocks that move bytes in one direction together have the share of
  /// one engine.
  int kernel_class(int launcher, int slice, Place source, Place destination);

  Slots& engine(Place source, Place destination, int passes);
  /// Counted in threads.
  Slots& threads(int gpu, int slice) { return gpus_[gpu].sms[slice].threads; }

  /// Kernels of `gpu` that become due in [from, to) start at `to`.
  void make_busy(int gpu, Time from, Time to);
  Time kernel_may_start(int gpu, Time due) const;

  /// The link's capacities, each way and both, are multiplied by `factor` from now on.
  void scale_link(int link, double factor);

 private:
  enum class Kind { kCopy, kPageable, kKernel };
  using ClassKey = std::tuple<Kind, int, Place, Place>;
  // The multiprocessors of one slice of a GPU.
  struct Sms {
    Slots threads;
    int read = 0;  // resources
    int write = 0;
    std::vector<int> classes;
  };
  struct GpuState {
    Slices slices;
    std::deque<Sms> sms;  // by slice
  };
  struct Busy {
    int gpu;
    Time from;
    Time to;
  };

  int find_class(const ClassKey& key, const std::function<std::vector<int>()>& resources,
                 double cap_gbps, int group = Flows::kNoGroup);
  static int direction(Place source, Place destination);
  void add_hops(std::vector<int>& resources, const std::vector<topology::Hop>& hops) const;
  void add_leg(std::vector<int>& resources, Place from, Place to) const;
  std::vector<int> copy_route(Place source, Place destination, int passes) const;
  void add_sms(int gpu);
  void divide(int gpu);

  const topology::Server& server_;
  int links_;
  Simulation simulation_;
  std::map<ClassKey, int> classes_;
  std::vector<Slots> engines_;  // by GPU: host to device, device to host, peer
  std::vector<GpuState> gpus_;
  std::vector<Busy> busy_;
};

}  // namespace braid::emulator
