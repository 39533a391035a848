// The host twin of pull.cu. Keep it in step with pull_protocol.cuh, function by function.
#include <cstddef>

#include "cuda/kernels/pull.h"
#include "cuda/kernels/twins.h"

namespace braid::cuda {
namespace {

class PullBlock final : public TwinBlock {
 public:
  explicit PullBlock(const PullArgs& args) : args_(args) {}

  TwinStep step(TwinMemory& memory) override {
    if (!entered_) enter(memory);
    const bool held_before = holds_;
    if (!holds_) {
      if (was_busy_) return memory.load(next()) >= args_.slice_count ? leave(memory) : rest(memory);
      hold_next(memory);
    }
    if (held_ >= args_.slice_count) return leave(memory);
    const Slice slice = slice_bounds(args_, held_);
    holds_ = false;
    if (!was_busy_) hold_next(memory);
    sample_busy(memory);
    ++unreported_;
    short_bytes_ += args_.slice_bytes - static_cast<uint32_t>(slice.size_bytes);
    return {.kind = TwinStep::Kind::kMove,
            .source = args_.source + slice.offset,
            .destination = args_.destination + slice.offset,
            .size_bytes = slice.size_bytes,
            .overlaps = held_before};
  }

 private:
  bool is_direct() const { return args_.path == 0; }
  uint64_t next() const { return args_.counters + offsetof(TicketCounters, next); }
  uint64_t done() const { return args_.counters + offsetof(TicketCounters, done); }
  uint64_t left() const { return args_.counters + offsetof(TicketCounters, left); }
  uint64_t slices(uint32_t path) const {
    return args_.counters + offsetof(TicketCounters, slices) + path * sizeof(uint32_t);
  }

  uint64_t short_bytes(uint32_t path) const {
    return args_.counters + offsetof(TicketCounters, short_bytes) + path * sizeof(uint32_t);
  }

  void enter(TwinMemory& memory) {
    entered_ = true;
    if (is_direct()) memory.fetch_add(args_.busy, 1);
    sample_busy(memory);
  }

  void hold_next(TwinMemory& memory) {
    held_ = memory.fetch_add(next(), 1);
    holds_ = true;
  }

  void sample_busy(TwinMemory& memory) {
    if (!is_direct() && args_.yields != 0) was_busy_ = memory.load(args_.busy) != 0;
  }

  TwinStep rest(TwinMemory& memory) {
    land(memory);
    sample_busy(memory);
    return {.kind = TwinStep::Kind::kPoll};
  }

  void land(TwinMemory& memory) {
    if (unreported_ == 0) return;
    memory.fetch_add(done(), unreported_);
    moved_ += unreported_;
    unreported_ = 0;
  }

  TwinStep leave(TwinMemory& memory) {
    land(memory);
    if (is_direct()) memory.fetch_add(args_.busy, ~uint32_t{0});
    if (moved_ != 0) memory.fetch_add(slices(args_.path), moved_);
    if (short_bytes_ != 0) memory.fetch_add(short_bytes(args_.path), short_bytes_);
    if (memory.fetch_add(left(), 1) + 1 == args_.total_blocks) close_ticket(memory);
    return {.kind = TwinStep::Kind::kExit};
  }

  static void move_word(TwinMemory& memory, uint64_t from, uint64_t to) {
    memory.store(to, memory.load(from));
    memory.store(from, 0);
  }

  // The last block to leave: nobody else reads or writes this ticket now.
  void close_ticket(TwinMemory& memory) const {
    for (uint32_t path = 0; path < args_.path_count; ++path) {
      const uint64_t word = path * sizeof(uint32_t);
      move_word(memory, slices(path), args_.report + offsetof(TicketReport, slices) + word);
      move_word(memory, short_bytes(path),
                args_.report + offsetof(TicketReport, short_bytes) + word);
    }
    memory.store(next(), 0);
    memory.store(left(), 0);
    memory.store(args_.report + offsetof(TicketReport, generation), args_.generation);
  }

  PullArgs args_;
  bool entered_ = false;
  bool holds_ = false;
  bool was_busy_ = false;
  uint32_t held_ = 0;
  uint32_t unreported_ = 0;
  uint32_t moved_ = 0;
  uint32_t short_bytes_ = 0;
};

}  // namespace

std::unique_ptr<TwinBlock> make_pull_block(const void* args, uint32_t /*block_index*/) {
  return std::make_unique<PullBlock>(*static_cast<const PullArgs*>(args));
}

}  // namespace braid::cuda
