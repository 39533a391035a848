// The host twin of pull.cu. Keep the two in step: each decision here has its line there.
#include <algorithm>
#include <array>

#include "cuda/kernels/pull.h"
#include "cuda/kernels/twin.h"

namespace braid::cuda {
namespace {

class PullBlock final : public TwinBlock {
 public:
  explicit PullBlock(const PullArgs& args) : args_(args) {}

  TwinStep step(TwinMemory& memory) override {
    if (!entered_) enter(memory);
    if (holds_slice_) land_slice(memory);
    if (must_yield(memory)) {
      if (memory.load(next()) < args_.slice_count) return {.kind = TwinStep::Kind::kPoll};
      return leave(memory);
    }
    const uint32_t slice = memory.fetch_add(next(), 1);
    if (slice >= args_.slice_count) return leave(memory);
    holds_slice_ = true;
    const uint64_t offset = uint64_t{slice} * args_.slice_bytes;
    return {.kind = TwinStep::Kind::kMove,
            .source = args_.source + offset,
            .destination = args_.destination + offset,
            .size_bytes = std::min<uint64_t>(args_.slice_bytes, args_.size_bytes - offset)};
  }

 private:
  bool is_direct() const { return args_.path == 0; }
  uint64_t next() const { return args_.counters + offsetof(TicketCounters, next); }
  uint64_t done() const { return args_.counters + offsetof(TicketCounters, done); }
  uint64_t left() const { return args_.counters + offsetof(TicketCounters, left); }
  uint64_t slices(uint32_t path) const {
    return args_.counters + offsetof(TicketCounters, slices) + path * sizeof(uint32_t);
  }

  void enter(TwinMemory& memory) {
    entered_ = true;
    if (is_direct()) memory.fetch_add(args_.busy, 1);
  }

  bool must_yield(TwinMemory& memory) const {
    return !is_direct() && args_.yields != 0 && memory.load(args_.busy) != 0;
  }

  void land_slice(TwinMemory& memory) {
    holds_slice_ = false;
    ++slices_moved_;
    memory.fetch_add(done(), 1);
  }

  TwinStep leave(TwinMemory& memory) const {
    if (is_direct()) memory.fetch_add(args_.busy, ~uint32_t{0});
    memory.fetch_add(slices(args_.path), slices_moved_);
    if (memory.fetch_add(left(), 1) + 1 == args_.total_blocks) close_ticket(memory);
    return {.kind = TwinStep::Kind::kExit};
  }

  // The last block to leave: nobody else reads or writes this ticket now.
  void close_ticket(TwinMemory& memory) const {
    for (uint32_t path = 0; path < kMaxPaths; ++path) {
      memory.store(args_.report + offsetof(TicketReport, slices) + path * sizeof(uint32_t),
                   memory.load(slices(path)));
      memory.store(slices(path), 0);
    }
    memory.store(next(), 0);
    memory.store(left(), 0);
    memory.store(args_.report + offsetof(TicketReport, generation), args_.generation);
  }

  PullArgs args_;
  bool entered_ = false;
  bool holds_slice_ = false;
  uint32_t slices_moved_ = 0;
};

constexpr std::array kTwins = {Twin{kPullKernelName, sizeof(PullArgs),
                                    [](const void* args, uint32_t) -> std::unique_ptr<TwinBlock> {
                                      return std::make_unique<PullBlock>(
                                          *static_cast<const PullArgs*>(args));
                                    }}};

}  // namespace

std::span<const Twin> twins() { return kTwins; }

}  // namespace braid::cuda
