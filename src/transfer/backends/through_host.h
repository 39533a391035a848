// Moves slices between GPU memory of this process and a way that reaches only host memory: a rail,
// or a file. A slice goes in chunks through pinned memory of the engine, one hop after the other. A
// chunk begins a hop only when it has memory at the hop's end, so there is no deadlock
// (policy/routes.h, Pipeline). Reads and writes have separate memory, and no way holds more than a
// part of it.
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

#include "fabric/gpu/passage.h"
#include "fabric/slot_map.h"
#include "transfer/backend.h"
#include "transfer/buffers.h"
#include "transfer/gpu_jobs.h"
#include "transfer/policy/routes.h"

namespace braid::transfer {

class ThroughHost {
 public:
  /// `add_stage` registers memory of the engine and returns the buffer's number, or 0 if that
  /// fails. All must outlive this object.
  ThroughHost(const Buffers& buffers, GpuJobs& jobs,
              std::function<uint64_t(MutableBytes)> add_stage);

  /// As Backend::post, but `take_ends` returns the end. `backend` carries the chunks on its way
  /// `carrier`.
  void post(Backend& backend, uint32_t way, uint32_t carrier, const Piece& piece);
  /// As Backend::give_up. Begins no more chunks of the piece.
  void give_up(uint64_t piece);
  /// Takes the end of a chunk. False: it is the end of something else.
  bool take(const PieceEnd& end);
  bool has_ends() const { return !ends_.empty(); }
  std::vector<PieceEnd> take_ends() { return std::exchange(ends_, {}); }
  /// Begins no more chunks on the way: it is being fenced.
  void stop(uint32_t way);
  /// Whether pieces of the way are under way, perhaps on their last hop.
  bool holds(uint32_t way) const;
  /// Nothing of the lane's context is registered any more. What it has pinned is unpinned once the
  /// copies of other contexts that are under way there have ended; later ones use bounce buffers,
  /// until it is pinned again by the next context that copies.
  void leave(const std::shared_ptr<fabric::gpu::Lane>& lane);
  /// Ways with chunks that are being copied from or to a GPU now.
  const std::map<uint32_t, size_t>& copying() const { return copying_; }

 private:
  /// The pinned memory of one direction.
  struct Stage {
    fabric::gpu::Passage memory;  // not open: not made yet
    uint64_t buffer = 0;
    std::vector<uint32_t> free;         // parts
    std::map<uint32_t, size_t> leased;  // by way
  };
  struct Moving {
    Backend* backend = nullptr;
    uint32_t way = 0;
    uint32_t carrier = 0;
    Piece piece;
    const Buffer* gpu = nullptr;
    uint32_t credits = 0;
    std::vector<uint32_t> parts;  // leased parts of the stage: `credits` of them, or none yet
    Pipeline pipeline;
    Cause cause = Cause::kNone;
    bool may_land = false;
    bool is_unexplained = false;  // PieceEnd
    bool is_write() const { return piece.operation == Operation::kWrite; }
  };
  /// One hop of a chunk, on the backend.
  struct Chunk {
    uint64_t moving = 0;
    Pipeline::Step step;
  };

  Stage& stage_of(const Moving& moving) { return stages_[moving.is_write() ? 1 : 0]; }
  bool make(Stage& stage);
  void leave_lanes();
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
  std::set<std::shared_ptr<fabric::gpu::Lane>> leaving_;
  std::vector<PieceEnd> ends_;
};

}  // namespace braid::transfer
