// The state of braid inside the program's process: the driver that the program loaded, the options,
// the engine, the counters. Everything here is constant-initialised, and never freed: threads of
// the program may still be copying while it exits. Every function may be called from any thread,
// and before any constructor has run. binding.h fills in the driver, contexts.h the engine.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>

#include "base/options.h"
#include "cuda/driver.h"
#include "multipath/engine.h"
#include "preload/hooks.h"
#include "preload/statistics.h"

namespace braid::preload {

enum class State : int {
  kIdle,      ///< the program has made no context: there is nothing to accelerate
  kCreating,  ///< a thread is creating the engine
  kOpen,      ///< there is an engine; its relays open when a copy needs them
  kFailed,    ///< reported once on stderr: everything stays native
  kForked,    ///< child of a process with an engine: everything stays native
};

State state() noexcept;

/// Null before bind(), and when the driver lacks a function that braid needs.
const cuda::Driver* driver() noexcept;

/// Null unless State::kOpen. Call it once and keep the result: the next call may return null.
multipath::Engine* engine() noexcept;

/// Call after bind().
const Options& options() noexcept;

/// Copies smaller than this stay native without asking the engine.
uint64_t threshold_bytes() noexcept;

/// The smaller of threshold_bytes() and staging_bytes(), for copies of unknown memory.
uint64_t least_bytes() noexcept;

/// Pageable copies smaller than this stay native; UINT64_MAX when all do.
uint64_t staging_bytes() noexcept;

Statistics& statistics() noexcept;

/// The driver's own function for a hook; null if unknown.
std::atomic<void*>& driver_function(HookId hook) noexcept;

// If threads race, the values of the first one are kept.
void set_driver(cuda::Driver driver);
void set_options(Options options);

/// From State::kIdle; true for exactly one thread.
bool begin_creating() noexcept;
/// Waits until that thread has created the engine, or failed. That thread waits for no stream
/// meanwhile.
void wait_while_creating() noexcept;
/// The engine is created.
void set_engine(std::unique_ptr<multipath::Engine> engine) noexcept;

/// The engine cannot be used: reports why, and everything stays native. Callers that have the
/// engine may still use it.
void give_engine_up(const char* why) noexcept;

/// Call it in a forked child. CUDA does not survive fork, nor do the engine's streams. If the
/// parent had not started CUDA, the child may still start CUDA and braid for itself.
void become_child() noexcept;

/// True while this thread is inside braid: driver calls made there are braid's or the driver's own.
class ReentryGuard {
 public:
  ReentryGuard() : was_inside_(inside_) { inside_ = true; }
  ~ReentryGuard() { inside_ = was_inside_; }
  ReentryGuard(const ReentryGuard&) = delete;
  ReentryGuard& operator=(const ReentryGuard&) = delete;
  static bool is_active() { return inside_; }

 private:
  // Initial-exec: the storage is there when the thread starts, so reading it never allocates.
  static thread_local bool inside_ __attribute__((tls_model("initial-exec")));
  bool was_inside_;
};

/// True if the call is none for braid: it comes from inside braid, braid has no driver, or the
/// process is a forked child.
inline bool is_for_driver() noexcept {
  return ReentryGuard::is_active() || driver() == nullptr || state() == State::kForked;
}

}  // namespace braid::preload
