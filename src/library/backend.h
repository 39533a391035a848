// The engine behind the C interface, and what counts its copies. There is one of two:
// - libbraid.so opens an engine of its own (own_engine.cpp);
// - a process under `braid run` has an engine, the interposer's. libbraid_preload.so therefore has
//   every function of braid.h too, with that engine behind them (shared_engine.cpp), and the
//   program finds these before libbraid.so's. So no copy is carried twice, and a process has one
//   set of relays and one report.
//
// Threads: every member from any thread at once.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "base/options.h"
#include "cuda/driver.h"
#include "library/error.h"
#include "multipath/engine.h"
#include "preload/log.h"
#include "preload/reporter.h"

namespace braid::library {

class Backend {
 public:
  virtual ~Backend() = default;

  virtual const cuda::Driver& driver() const = 0;
  /// Null: none can be had any more, and copies are native.
  virtual multipath::Engine* engine() = 0;
  /// Engine::add_context; null: the primary contexts.
  virtual Status add_context(CUcontext context) = 0;
  /// A copy has come that relays would carry, and they are not open.
  virtual void open_relays() noexcept = 0;
  /// For the statistics, and for the log if there is one. `record.gpu` need not be known.
  virtual void count(const preload::CopyRecord& record) noexcept = 0;
  /// One line of JSON, with its newline. Waits so long for copies in flight.
  virtual std::string statistics(int wait_ms) = 0;
};

/// Starts CUDA if the program has not. With `waits_for_relays` they are open when it returns, and
/// else they open beside the program. Each of the two libraries defines its own.
Error open_backend(const Options& options, std::unique_ptr<Backend>& backend);

/// What was counted, as braid_stats_json gives it.
std::string render_json(const preload::StatisticsSource& counted, int wait_ms,
                        std::span<const std::string> problems);

}  // namespace braid::library
