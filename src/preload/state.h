// The state of braid inside the program's process: the driver that the program loaded, the options,
// the engine, the counters. Everything here is constant-initialised and does nothing until the
// program reaches for CUDA. Every function may be called from any thread, and before any
// constructor has run.
#pragma once

#include <cuda.h>

#include <cstdint>

#include "cuda/driver.h"
#include "multipath/engine.h"
#include "preload/hooks.h"
#include "preload/statistics.h"

namespace braid::preload {

enum class State : int {
  kIdle,       ///< the program has made no context: there is nothing to accelerate
  kPreparing,  ///< a thread is preparing the engine
  kOpen,       ///< there is an engine; its relays open when a copy wants them
  kFailed,     ///< said once on stderr: everything stays native
  kForked,     ///< child of a process that used the engine: everything stays native
};

/// Finds the driver that the program has loaded; never loads one. The first success also reads the
/// options. False when there is none (yet).
bool bind() noexcept;

/// The driver's own function for a hook; null when the driver has none or is not loaded.
void* real_function(HookId hook) noexcept;

template <typename Function>
Function* real(HookId hook) noexcept {
  return reinterpret_cast<Function*>(real_function(hook));
}

/// Replaces the resolver's answer with braid's function when the table knows it.
void substitute(const char* base_name, void** function, int version, uint64_t flags) noexcept;

/// Null before bind(), and when the driver lacks a function that braid needs.
const cuda::Driver* driver() noexcept;

State state() noexcept;

/// Null unless State::kOpen. Ask once and use the answer: it may be null at the next call.
multipath::Engine* engine() noexcept;

/// Copies smaller than this stay native without asking the engine.
uint64_t threshold_bytes() noexcept;

/// The smaller of that and staging_bytes(): copies that are pinned or not.
uint64_t least_bytes() noexcept;

/// Pageable copies smaller than this stay native; UINT64_MAX when all do.
uint64_t staging_bytes() noexcept;

/// Call after bind().
const Options& options() noexcept;

Statistics& statistics() noexcept;

/// Prepares the engine if nobody has; true when this call, and no other, did. Allocates. Call it
/// holding `hold_primaries` (primaries.h).
bool prepare_engine_once() noexcept;

/// The engine cannot be used: says why, and everything stays native. Who has the engine may go on
/// asking it.
void give_engine_up(const char* why) noexcept;

/// One line on stderr, "braid: <message>", unless the same has been said before.
void say_once(const char* message) noexcept;

/// True while this thread is inside braid: driver calls made there are braid's or the driver's own.
class Inside {
 public:
  Inside() : was_inside_(inside_) { inside_ = true; }
  ~Inside() { inside_ = was_inside_; }
  Inside(const Inside&) = delete;
  Inside& operator=(const Inside&) = delete;
  static bool now() { return inside_; }

 private:
  // Initial-exec: the storage is there when the thread starts, so reading it never allocates.
  static thread_local bool inside_ __attribute__((tls_model("initial-exec")));
  bool was_inside_;
};

}  // namespace braid::preload
