// The engine as programs use it: every copy that is asked for is put into the stream, by braid
// where it gains and by the driver where not. Behind braid_engine.
//
// Threads: every member from any thread at once. See include/braid/braid.h for the rest: its
// promises are kept here.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/options.h"
#include "cuda/driver.h"
#include "library/backend.h"
#include "library/copy_list.h"
#include "library/error.h"
#include "library/memory_map.h"
#include "library/native.h"
#include "library/overlap.h"
#include "multipath/engine.h"
#include "preload/statistics.h"

namespace braid::library {

/// What a thread keeps from call to call, so that copies do not allocate: the copies of the call,
/// and lists made of them.
struct Scratch {
  std::vector<Copy> copies;
  OverlapCheck overlap;
  std::vector<multipath::Segment> segments;
  NativeArrays native;
  MemoryMap memory;
};

/// The call that copies belong to.
struct CopyCall {
  preload::EntryPoint entry_point;
  CUstream stream;  ///< the handle itself: never null
  multipath::Priority priority;
  bool is_forecast = false;    ///< what would become of the copies; nothing is put into the stream
  bool spares_target = false;  ///< no kernel on the GPU whose memory is copied
};

/// What became of a call's copies so far.
struct CallOutcome {
  uint64_t accelerated_bytes = 0;  ///< staged ones too
  uint64_t native_bytes = 0;
  uint64_t own_bytes = 0;  ///< of the accelerated ones, by the driver (multipath::OwnLink)
  multipath::Verdict reason = multipath::Verdict::kAccelerated;  ///< of the first native part; of
                                                                 ///< none: kStaged if one is
};

class Copier {
 public:
  static Error open(const Options& options, std::unique_ptr<Copier>& copier);

  /// Makes the current context a target, and every primary context that is active.
  Error prepare();
  void forget_context(CUcontext context);

  /// Puts the calling thread's `scratch.copies`, whose order it may change, into the stream.
  Error copy(const CopyCall& order, Scratch& scratch, CallOutcome& call_outcome);
  /// `rows` must not overlap, and lie in the address space.
  Error copy_rows(const CopyCall& order, const Rows& rows, Scratch& scratch,
                  CallOutcome& call_outcome);

  /// Engine::paths_of.
  std::vector<multipath::CopyPath> paths_of(int gpu, multipath::Direction direction,
                                            uint64_t size_bytes);

  std::string statistics();

 private:
  struct Route;
  using Copies = std::span<const Copy>;

  Copier(std::unique_ptr<Backend> backend, const Options& options);
  static Route route_between(const Memory& destination, const Memory& source);
  Route route_of(const Copy& copy, MemoryMap& memory) const;
  template <typename Native>
  Error carry(const CopyCall& order, const Route& route,
              std::span<const multipath::Segment> segments, uint64_t size_bytes,
              const Native& native, CallOutcome& call_outcome,
              const multipath::OwnLink* own_link = nullptr);
  Error copy_group(Copies group, const Route& route, const CopyCall& order, Scratch& scratch,
                   CallOutcome& call_outcome);
  bool add_context_of(CUstream stream, const Route& route);
  multipath::Outcome offer(multipath::Engine& engine, const multipath::Batch& batch,
                           const CopyCall& order) const;
  std::optional<multipath::Staged> stage(multipath::Engine& engine, const multipath::Batch& batch,
                                         multipath::Verdict declined, const CopyCall& order) const;

  const std::unique_ptr<Backend> backend_;
  const cuda::Driver& driver_;
  uint64_t staging_bytes_;    // pageable copies of fewer are native
  uint64_t least_bytes_ = 0;  // and so are all copies of fewer
};

}  // namespace braid::library
