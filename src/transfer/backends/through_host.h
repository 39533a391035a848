// Slices between GPU memory of this process and a way that reaches host memory alone: a rail, or a
// file. They go in chunks through pinned memory of the engine's, one hop behind the other: what a
// chunk arrives in is its own before it is asked for, so nothing waits for what waits for it
// (policy/routes.h, Pipeline). Reads and writes have memory of their own each, and no way holds
// more than a part of it.
//
// Threads: one at a time. Nothing blocks.
#pragma once

#include <array>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <utility>
#include <vector>

#include "fabric/gpu/host_memory.h"
#include "fabric/slot_map.h"
#include "transfer/backend.h"
#include "transfer/buffers.h"
#include "transfer/gpu_jobs.h"
#include "transfer/policy/routes.h"

namespace braid::transfer {

class ThroughHost {
 public:
  /// `add_stage` registers memory of the engine's own: the buffer's number, 0 if that cannot be.
  /// All stay.
  ThroughHost(const Buffers& buffers, GpuJobs& jobs,
              std::function<uint64_t(MutableBytes)> add_stage);

  /// As Backend::post: the end comes from `take_ends`. `backend` carries the chunks, on the way
  /// that it knows as `carrier`.
  void post(Backend& backend, uint32_t way, uint32_t carrier, const Piece& piece);
  /// Whether it was the end of a chunk.
  bool take(const PieceEnd& end);
  bool has_ends() const { return !ends_.empty(); }
  std::vector<PieceEnd> take_ends() { return std::exchange(ends_, {}); }
  /// Begins nothing more there: it is fenced.
  void stop(uint32_t way);
  /// Something of it is under way, perhaps on its last hop.
  bool holds(uint32_t way) const;
  /// Ways of which a chunk is being copied from or to a GPU now.
  const std::map<uint32_t, size_t>& copying() const { return copying_; }

  static constexpr uint64_t kChunkBytes = 512 << 10;

 private:
  /// Of one direction.
  struct Stage {
    std::shared_ptr<fabric::gpu::HostMemory> memory;  // null: not made yet
    uint64_t buffer = 0;
    std::vector<uint32_t> free;         // parts
    std::map<uint32_t, size_t> leased;  // by way
    std::set<const fabric::gpu::Lane*> pinned_by;
  };
  struct Moving {
    Backend* backend = nullptr;
    uint32_t way = 0;
    uint32_t carrier = 0;
    Piece piece;
    const Buffer* gpu = nullptr;
    uint32_t credits = 0;
    std::vector<uint32_t> parts;  // of the stage, leased: so many, or none yet
    Pipeline pipeline;
    Cause cause = Cause::kNone;
    bool may_land = false;
    bool is_write() const { return piece.operation == Operation::kWrite; }
  };
  /// A hop of a chunk on the backend.
  struct Chunk {
    uint64_t moving = 0;
    Pipeline::Step step;
  };

  Stage& stage_of(const Moving& moving) { return stages_[moving.is_write() ? 1 : 0]; }
  bool make(Stage& stage);
  void begin_waiting();
  bool lease(Moving& moving);
  void advance(uint64_t number);
  void copy(uint64_t number, const Moving& moving, const Pipeline::Step& step);
  void carry(uint64_t number, const Moving& moving, const Pipeline::Step& step);
  void step_ended(uint64_t number, const Pipeline::Step& step, Cause cause);
  MutableBytes part_of(const Moving& moving, const Pipeline::Step& step);

  const Buffers& buffers_;
  GpuJobs& jobs_;
  std::function<uint64_t(MutableBytes)> add_stage_;
  std::array<Stage, 2> stages_;  // of reads, and of writes
  fabric::SlotMap<Moving> moving_;
  fabric::SlotMap<Chunk> chunks_;
  std::map<uint32_t, size_t> held_;     // pieces, by way
  std::map<uint32_t, size_t> copying_;  // copies, by way
  std::deque<uint64_t> waiting_;        // for a lease, in order
  std::vector<PieceEnd> ends_;
};

}  // namespace braid::transfer
