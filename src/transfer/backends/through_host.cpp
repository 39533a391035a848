#include "transfer/backends/through_host.h"

#include <algorithm>

namespace braid::transfer {
namespace {

constexpr uint32_t kParts = 64;  // of a direction: 32 MiB
constexpr uint32_t kPartsOfPiece = 8;
constexpr size_t kPartsOfWay = 32;  // so that a stalled peer does not hold all parts
/// Marks the numbers of chunks. Postings of the scheduler have numbers without this bit.
constexpr uint64_t kChunk = uint64_t{1} << 63;

}  // namespace

ThroughHost::ThroughHost(const Buffers& buffers, GpuJobs& jobs,
                         std::function<uint64_t(MutableBytes)> add_stage)
    : buffers_(buffers), jobs_(jobs), add_stage_(std::move(add_stage)) {}

bool ThroughHost::make(Stage& stage) {
  if (stage.memory.is_open()) return true;
  auto memory = fabric::gpu::HostMemory::open(kParts * kChunkBytes);
  if (memory == nullptr) return false;
  stage.buffer = add_stage_(memory->bytes());
  if (stage.buffer == 0) return false;
  stage.memory = fabric::gpu::Passage(std::move(memory));
  for (uint32_t i = kParts; i-- > 0;) stage.free.push_back(i);
  return true;
}

void ThroughHost::post(Backend& backend, uint32_t way, uint32_t carrier, const Piece& piece) {
  const uint64_t chunks = (piece.local.size() + kChunkBytes - 1) / kChunkBytes;
  const auto credits = static_cast<uint32_t>(std::min<uint64_t>(chunks, kPartsOfPiece));
  Moving moving{&backend,
                way,
                carrier,
                piece,
                buffers_.find(piece.buffer),
                credits,
                {},
                Pipeline(piece.local.size(), kChunkBytes, {credits})};
  Stage& stage = stage_of(moving);
  if (!make(stage)) return ends_.push_back({piece.id, Cause::kTooMuch, false});
  if (leaving_.erase(moving.gpu->lane) > 0)
    for (Stage& each : stages_) each.memory.stay(*moving.gpu->lane);
  stage.memory.pin(moving.gpu->lane);
  ++held_[way];
  waiting_.push_back(moving_.add(std::move(moving)));
  begin_waiting();
}

void ThroughHost::leave(const std::shared_ptr<fabric::gpu::Lane>& lane) {
  leaving_.insert(lane);
  leave_lanes();
}

void ThroughHost::leave_lanes() {
  std::erase_if(leaving_, [this](const std::shared_ptr<fabric::gpu::Lane>& lane) {
    bool has_left = true;
    for (Stage& stage : stages_) has_left = stage.memory.leave(*lane) && has_left;
    return has_left;
  });
}

/// Gives each waiting piece all the memory that it needs at once, or none. A piece that gets none
/// keeps its place: no piece of its way overtakes it, and no piece at all if the memory is short.
void ThroughHost::begin_waiting() {
  std::vector<uint64_t> begun;
  std::set<std::pair<bool, uint32_t>> held_up;  // ways, by direction
  bool is_short[2] = {false, false};
  std::erase_if(waiting_, [&](uint64_t number) {
    Moving* moving = moving_.find(number);
    if (moving != nullptr && moving->cause == Cause::kNone) {
      const bool direction = moving->is_write();
      if (is_short[direction] || held_up.contains({direction, moving->way})) return false;
      if (!lease(*moving)) {
        is_short[direction] = stage_of(*moving).free.size() < moving->credits;
        held_up.insert({direction, moving->way});
        return false;
      }
    }
    begun.push_back(number);
    return true;
  });
  for (const uint64_t number : begun) advance(number);
}

bool ThroughHost::lease(Moving& moving) {
  Stage& stage = stage_of(moving);
  size_t& leased = stage.leased[moving.way];
  if (stage.free.size() < moving.credits || leased + moving.credits > kPartsOfWay) return false;
  for (size_t i = 0; i < moving.credits; ++i) {
    moving.parts.push_back(stage.free.back());
    stage.free.pop_back();
  }
  leased += moving.credits;
  return true;
}

void ThroughHost::advance(uint64_t number) {
  Moving* moving = moving_.find(number);
  if (moving == nullptr) return;
  while (!moving->parts.empty()) {
    const std::optional<Pipeline::Step> step = moving->pipeline.next();
    if (!step) break;
    const bool is_copy = (step->hop == 0) == moving->is_write();
    is_copy ? copy(number, *moving, *step) : carry(number, *moving, *step);
    moving = moving_.find(number);
    if (moving == nullptr) return;
  }
  const bool is_over = moving->pipeline.is_done() || moving->cause != Cause::kNone;
  if (!is_over || moving->pipeline.under_way() > 0) return;
  Stage& stage = stage_of(*moving);
  stage.free.insert(stage.free.end(), moving->parts.begin(), moving->parts.end());
  stage.leased[moving->way] -= moving->parts.size();
  if (--held_[moving->way] == 0) held_.erase(moving->way);
  // If bytes may still land, the way has failed, whatever else was wrong: another way will report
  // that again.
  const Cause cause = moving->may_land ? Cause::kPathFailed : moving->cause;
  ends_.push_back({moving->piece.id, cause, moving->may_land, moving->is_unexplained});
  moving_.erase(number);
  begin_waiting();
}

MutableBytes ThroughHost::part_of(const Moving& moving, const Pipeline::Step& step) {
  const uint32_t buffer = step.hop == 0 ? step.to_buffer : step.from_buffer;
  return stage_of(moving).memory.bytes().subspan(moving.parts[buffer] * kChunkBytes,
                                                 step.size_bytes);
}

void ThroughHost::copy(uint64_t number, const Moving& moving, const Pipeline::Step& step) {
  const MutableBytes part = part_of(moving, step);
  std::byte* on_gpu = moving.piece.local.data() + step.offset;
  GpuJob job;
  job.lane = moving.gpu->lane;
  job.kind = moving.is_write() ? fabric::gpu::CopyKind::kToHost : fabric::gpu::CopyKind::kToGpu;
  job.to = moving.is_write() ? part.data() : on_gpu;
  job.from = moving.is_write() ? on_gpu : part.data();
  job.size_bytes = step.size_bytes;
  job.regions = moving.gpu->id << 32 ^ stage_of(moving).buffer;
  fabric::gpu::Passage& memory = stage_of(moving).memory;
  job.uses_bounce_buffer = memory.begin_copy();
  job.ended = [this, number, step, way = moving.way, bounces = job.uses_bounce_buffer,
               &memory](bool ok) {
    memory.end_copy(bounces);
    if (--copying_[way] == 0) copying_.erase(way);
    leave_lanes();
    step_ended(number, step, ok ? Cause::kNone : Cause::kGpuError);
  };
  ++copying_[moving.way];
  jobs_.start(std::move(job));
}

void ThroughHost::carry(uint64_t number, const Moving& moving, const Pipeline::Step& step) {
  Piece part = moving.piece;
  part.id = kChunk | chunks_.add({number, step});
  part.buffer = stage_of(moving).buffer;
  part.local = part_of(moving, step);
  part.address += step.offset;
  moving.backend->post(moving.carrier, part);
}

void ThroughHost::give_up(uint64_t piece) {
  uint64_t number = 0;
  moving_.for_each([&](uint64_t each, const Moving& moving) {
    if (moving.piece.id == piece) number = each;
  });
  Moving* moving = moving_.find(number);
  if (moving == nullptr) return;
  if (moving->cause == Cause::kNone) moving->cause = Cause::kCancelled;
  moving->pipeline.stop();
  chunks_.for_each([&](uint64_t chunk, const Chunk& each) {
    if (each.moving == number) moving->backend->give_up(moving->carrier, kChunk | chunk);
  });
  advance(number);
}

bool ThroughHost::take(const PieceEnd& end) {
  if ((end.id & kChunk) == 0) return false;
  const Chunk* found = chunks_.find(end.id & ~kChunk);
  if (found == nullptr) return true;
  const Chunk chunk = *found;
  chunks_.erase(end.id & ~kChunk);
  if (Moving* moving = moving_.find(chunk.moving); moving != nullptr) {
    moving->may_land = moving->may_land || end.may_land;
    moving->is_unexplained = moving->is_unexplained || end.is_unexplained;
  }
  step_ended(chunk.moving, chunk.step, end.cause);
  return true;
}

void ThroughHost::step_ended(uint64_t number, const Pipeline::Step& step, Cause cause) {
  Moving& moving = *moving_.find(number);
  moving.pipeline.done(step);
  if (cause != Cause::kNone) {
    if (moving.cause == Cause::kNone) moving.cause = cause;
    moving.pipeline.stop();
  }
  advance(number);
}

void ThroughHost::stop(uint32_t way) {
  std::vector<uint64_t> stopped;
  moving_.for_each([&](uint64_t number, Moving& moving) {
    if (moving.way != way || moving.pipeline.is_done()) return;
    if (moving.cause == Cause::kNone) moving.cause = Cause::kPathFailed;
    moving.pipeline.stop();
    stopped.push_back(number);
  });
  for (const uint64_t number : stopped) advance(number);
}

bool ThroughHost::holds(uint32_t way) const { return held_.contains(way); }

}  // namespace braid::transfer
