// The host twin of pull_kernels.cu. Keep it in step with pull_protocol.cuh, function by function.
#include <cstddef>

#include "cuda/kernels/pages.h"
#include "cuda/kernels/pages_twin.h"
#include "cuda/kernels/pull.h"
#include "cuda/kernels/twin.h"

namespace braid::cuda {
namespace {

class PullBlock final : public TwinBlock {
 public:
  explicit PullBlock(const PullArgs& args)
      : args_(args), own_kb_(kb_left(args, 0)), watch_(args.occupancy) {}

  TwinStep step(TwinMemory& memory) override {
    if (args_.total_blocks == 0) return {.kind = TwinStep::Kind::kExit};
    if (!entered_) enter(memory);
    if (piece_ < list_.piece_count) return move_piece(true);
    if (args_.shared != 0) watch_turns(memory);
    bool has_to_rest = must_rest(args_, seen_, own_kb_) || link_rests(memory);
    const bool held_before = held_count_ != 0;
    if (!held_before) {
      if (is_shared_) return leave(memory);
      // Asked again, of the occupancy as it is now: a block that sleeps is woken by a change of
      // what it read last, and what it read before may have been out of date already.
      if (has_to_rest) has_to_rest = must_still_rest(memory);
      if (has_to_rest && memory.load(next()) < args_.slice_count)
        return {.kind = TwinStep::Kind::kPoll, .wake_ns = rest_ends_ns(memory)};
      if (has_to_rest) return leave(memory);
      hold(memory);
    }
    const uint32_t number = first_;
    if (number >= args_.slice_count) return leave(memory);
    first_ = second_;
    --held_count_;
    publish(memory, number);
    const bool takes_more = !has_to_rest && !is_shared_;
    if (takes_more && held_count_ == 0) hold(memory);
    if (takes_more && args_.lists != 0) hold(memory);
    look(memory);
    read_list(memory, number);
    count(memory);
    return move_piece(held_before);
  }

 private:
  uint64_t next() const { return args_.counters + offsetof(TransferCounters, next); }
  uint64_t done() const { return args_.counters + offsetof(TransferCounters, done); }
  uint64_t left() const { return args_.counters + offsetof(TransferCounters, left); }
  uint64_t slices(uint32_t path) const {
    return args_.counters + offsetof(TransferCounters, slices) + path * sizeof(uint32_t);
  }
  uint64_t short_bytes(uint32_t path) const {
    return args_.counters + offsetof(TransferCounters, short_bytes) + path * sizeof(uint64_t);
  }
  uint64_t ranked_blocks(uint32_t rank) const {
    return args_.occupancy + offsetof(LinkOccupancy, blocks) + rank * sizeof(uint32_t);
  }
  uint64_t relayed_kb(uint32_t slot) const {
    return args_.occupancy + offsetof(LinkOccupancy, relayed_kb) + slot * sizeof(uint32_t);
  }

  void enter(TwinMemory& memory) {
    entered_ = true;
    memory.fetch_add(ranked_blocks(args_.rank), 1);
    look(memory);
  }

  void watch_turns(TwinMemory& memory) {
    if (!is_shared_ && is_preempted(args_, looked_ns_, memory.now_ns())) {
      is_shared_ = args_.relays_stay == 0;
      memory.store(args_.shared, 1);
    }
    looked_ns_ = memory.now_ns();
  }

  void hold(TwinMemory& memory) {
    const uint32_t taken = memory.fetch_add(next(), 1);
    if (held_count_++ == 0)
      first_ = taken;
    else
      second_ = taken;
  }

  // The kernel's loads of the occupancy are under way together.
  void look(TwinMemory& memory) {
    if (args_.relay_slot != kNoRelaySlot)
      memory.read(args_.occupancy, &seen_, sizeof(seen_));
    else if (args_.rank != 0)
      memory.read(args_.occupancy + offsetof(LinkOccupancy, blocks), seen_.blocks,
                  sizeof(seen_.blocks));
    if (args_.relay_slot == kNoRelaySlot && minds_congestion(args_))
      memory.read(args_.occupancy + offsetof(LinkOccupancy, rests_until_ns), &seen_.rests_until_ns,
                  sizeof(seen_.rests_until_ns));
  }

  void publish(TwinMemory& memory, uint32_t next_slice) {
    if (args_.relay_slot == kNoRelaySlot) return;
    own_kb_ = kb_left(args_, next_slice);
    memory.store(relayed_kb(args_.relay_slot), next_slice < args_.slice_count ? own_kb_ : 0);
  }

  // A contiguous copy's slice is a list of one piece.
  void read_list(TwinMemory& memory, uint32_t number) {
    piece_ = 0;
    if (args_.lists != 0) {
      memory.read(args_.lists + number * sizeof(SliceList), &list_, sizeof(list_));
      return;
    }
    const Slice slice = slice_bounds(args_, number);
    list_.piece_count = 1;
    list_.size_bytes = static_cast<uint32_t>(slice.size_bytes);
    list_.pieces[0] = {args_.source + slice.offset, args_.destination + slice.offset,
                       list_.size_bytes, 0};
  }

  void count(TwinMemory& memory) {
    ++unreported_;
    short_bytes_ += args_.slice_bytes - list_.size_bytes;
    if (args_.pace == 0) return;
    memory.add(args_.pace + args_.direction * sizeof(uint32_t), list_.size_bytes >> 10);
    if (minds_congestion(args_) && watch_.count_slice()) watch_link(memory);
  }

  bool link_rests(TwinMemory& memory) const {
    return is_at_rest(memory.now_ns(), seen_.rests_until_ns);
  }

  // When to look again even if nothing that was looked at has changed; 0: never.
  uint64_t rest_ends_ns(TwinMemory& memory) const {
    return link_rests(memory) ? seen_.rests_until_ns : 0;
  }

  void watch_link(TwinMemory& memory) {
    uint32_t moved_kb[2];
    memory.read(args_.pace, moved_kb, sizeof(moved_kb));
    LinkSample sample{};
    const MovedKb moved{moved_kb[args_.direction], moved_kb[1 - args_.direction]};
    if (!watch_.sample(memory.now_ns(), moved, sample)) return;
    const uint64_t at = args_.pace + usual_offset(args_, sample);
    UsualPace usual{};
    memory.read(at, &usual, sizeof(usual));
    const uint64_t rest_ns = watch_.rest_ns(usual, sample);
    memory.write(at, learned(usual, sample));
    if (rest_ns != 0)
      memory.write(args_.occupancy + offsetof(LinkOccupancy, rests_until_ns),
                   memory.now_ns() + rest_ns);
  }

  TwinStep move_piece(bool overlaps) {
    const uint32_t piece = piece_++;
    return {.kind = TwinStep::Kind::kMove,
            .source = list_.pieces[piece].source,
            .destination = list_.pieces[piece].destination,
            .size_bytes = list_.pieces[piece].size_bytes,
            .overlaps = overlaps};
  }

  bool must_still_rest(TwinMemory& memory) {
    land(memory);
    watch_.restart();
    looked_ns_ = 0;
    publish(memory, memory.load(next()));
    look(memory);
    return must_rest(args_, seen_, own_kb_) || link_rests(memory);
  }

  void land(TwinMemory& memory) {
    if (unreported_ == 0) return;
    memory.fetch_add(done(), unreported_);
    moved_ += unreported_;
    unreported_ = 0;
  }

  TwinStep leave(TwinMemory& memory) {
    land(memory);
    publish(memory, args_.slice_count);
    memory.fetch_add(ranked_blocks(args_.rank), ~uint32_t{0});
    if (moved_ != 0) memory.fetch_add(slices(args_.path), moved_);
    if (short_bytes_ != 0) add_wide(memory, short_bytes(args_.path), short_bytes_);
    if (memory.fetch_add(left(), 1) + 1 == args_.total_blocks) close_state(memory);
    return {.kind = TwinStep::Kind::kExit};
  }

  // The carry is added by itself: additions of several blocks may come in any order.
  static void add_wide(TwinMemory& memory, uint64_t address, uint64_t value) {
    const auto low = static_cast<uint32_t>(value);
    const bool carries = memory.fetch_add(address, low) > ~low;
    const uint32_t high = static_cast<uint32_t>(value >> 32) + (carries ? 1 : 0);
    if (high != 0) memory.add(address + sizeof(uint32_t), high);
  }

  static void move_word(TwinMemory& memory, uint64_t from, uint64_t to) {
    memory.store(to, memory.load(from));
    memory.store(from, 0);
  }

  // The last block to leave: nobody else reads or writes this state now.
  void close_state(TwinMemory& memory) const {
    for (uint32_t path = 0; path < args_.path_count; ++path) {
      move_word(memory, slices(path),
                args_.report + offsetof(TransferReport, slices) + path * sizeof(uint32_t));
      const uint64_t to =
          args_.report + offsetof(TransferReport, short_bytes) + path * sizeof(uint64_t);
      for (const uint64_t half : {uint64_t{0}, sizeof(uint32_t)})
        move_word(memory, short_bytes(path) + half, to + half);
    }
    memory.store(next(), 0);
    memory.store(left(), 0);
    memory.store(args_.report + offsetof(TransferReport, generation), args_.generation);
  }

  PullArgs args_;
  bool entered_ = false;
  LinkOccupancy seen_{};
  uint32_t own_kb_;
  LinkWatch watch_;
  uint64_t looked_ns_ = 0;
  bool is_shared_ = false;
  uint32_t held_count_ = 0;
  uint32_t first_ = 0;
  uint32_t second_ = 0;
  SliceList list_{};  // the slice at hand
  uint32_t piece_ = 0;
  uint32_t unreported_ = 0;
  uint32_t moved_ = 0;
  uint64_t short_bytes_ = 0;
};

std::unique_ptr<TwinBlock> make_pull_block(const void* args, uint32_t /*block_index*/) {
  return std::make_unique<PullBlock>(*static_cast<const PullArgs*>(args));
}

// The pull kernels differ in how a slice's bytes move, which is the caller's business here.
constexpr Twin kTwins[] = {{kVectorKernelName, sizeof(PullArgs), make_pull_block},
                           {kBulkKernelName, sizeof(PullArgs), make_pull_block},
                           {kToHostKernelName, sizeof(PullArgs), make_pull_block},
                           {kPagesKernelName, sizeof(PagesArgs), make_pages_block}};

}  // namespace

std::span<const Twin> twins() { return kTwins; }

}  // namespace braid::cuda
