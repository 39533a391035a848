// The engine as programs use it: every copy that is asked for is put into the stream, by braid
// where it gains and by the driver where not. Behind braid_engine.
//
// Threads: every member from any thread at once. See include/braid/braid.h for the rest: its
// promises are kept here.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/options.h"
#include "cuda/driver.h"
#include "library/copy_list.h"
#include "library/error.h"
#include "library/memory_map.h"
#include "library/native.h"
#include "library/statistics.h"
#include "multipath/engine.h"

namespace braid::library {

/// What a thread keeps from call to call, so that copies do not allocate: the copies of the call,
/// and lists made of them.
struct Scratch {
  std::vector<Copy> copies;
  std::vector<Copy> sorted;
  std::vector<multipath::Segment> segments;
  NativeArrays native;
  MemoryMap memory;
};

/// The call that copies belong to.
struct Order {
  EntryPoint entry_point;
  CUstream stream;  ///< the handle itself: never null
  multipath::Priority priority;
};

/// What became of a call's copies so far.
struct Tally {
  uint64_t accelerated_bytes = 0;
  uint64_t native_bytes = 0;
  multipath::Verdict reason = multipath::Verdict::kAccelerated;  ///< of the first native part
};

class Copier {
 public:
  static Error open(const Options& options, std::unique_ptr<Copier>& copier);

  /// Makes the current context a target.
  Error prepare();
  void forget_context(CUcontext context) { engine_->forget_context(context); }

  /// Puts the calling thread's `scratch.copies`, whose order it may change, into the stream.
  Error copy(const Order& order, Scratch& scratch, Tally& tally);

  std::string statistics();

 private:
  struct Route;
  using Copies = std::span<const Copy>;

  Copier(cuda::Driver driver, const Options& options)
      : driver_(std::move(driver)), threshold_bytes_(options.threshold_bytes) {}
  Route route_of(const Copy& copy, MemoryMap& memory) const;
  Error copy_group(Copies group, const Route& route, const Order& order, Scratch& scratch,
                   Tally& tally);
  multipath::Outcome submit(Copies group, const Route& route, const Order& order, Scratch& scratch);
  Error copy_native(Copies group, bool may_batch, multipath::Verdict why, const Order& order,
                    Scratch& scratch, Tally& tally);

  const cuda::Driver driver_;
  const uint64_t threshold_bytes_;
  std::unique_ptr<multipath::Engine> engine_;  // uses driver_
  Statistics statistics_;
};

}  // namespace braid::library
