// The order of work: streams run their ops one after another; the legacy default stream and the
// blocking streams of its context wait for each other (CUDA driver API, "Stream synchronization
// behavior"). The world's lock covers it.
#pragma once

#include <functional>

#include "emulator/model/objects.h"
#include "emulator/model/virtual_clock.h"
#include "simulation/simulation.h"

namespace braid::emulator {

using simulation::Simulation;

class Scheduler {
 public:
  Scheduler(Simulation& simulation, VirtualClock& clock) : simulation_(simulation), clock_(clock) {}

  /// Adds work to the stream, after everything that CUDA orders before it, and after `after`.
  /// Returns its end. A stream that is being captured records the work instead: no end.
  CompletionPtr enqueue(const StreamPtr& stream, Begin begin,
                        std::vector<CompletionPtr> after = {});

  /// The op has ended now.
  void finish(const OpPtr& op);

  /// Abandons all work of the context: none of it moves any more, and nothing waits for it.
  void cancel_all(Context& context);

  /// Forgets destroyed streams whose work has ended.
  static void prune(Context& context);

 private:
  static void record(Stream& stream, Begin begin);
  void order_default_streams(const StreamPtr& stream, Op& op) const;
  void pump(const StreamPtr& stream);
  bool may_begin(const StreamPtr& stream);

  Simulation& simulation_;
  VirtualClock& clock_;
};

}  // namespace braid::emulator
