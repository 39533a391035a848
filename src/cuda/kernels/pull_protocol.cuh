// The protocol of both pull kernels: how one thread block takes slices, reports that they have
// landed, makes room for other blocks and leaves. Called by one thread of the block.
//
// The memory round trips of a slice are off its critical path (measured on 4xH200, 64 KB slices: 94
// GB/s with them on it). The next slice is taken, and the occupancy read, while the last one is
// still moving. Slices are reported together when the block stops, since only the full count opens
// the gate.
#pragma once

#include "cuda/kernels/pull.h"

namespace braid::cuda {

/// How long a resting block sleeps between two checks.
inline constexpr unsigned kRestPollNs = 2000;

enum class Take { kSlice, kRest, kOver };

__device__ inline uint4 load16(const void* address) {
  uint4 value;
  asm volatile("ld.relaxed.sys.global.L1::no_allocate.v4.u32 {%0,%1,%2,%3}, [%4];"
               : "=r"(value.x), "=r"(value.y), "=r"(value.z), "=r"(value.w)
               : "l"(address));
  return value;
}

/// `kLists`: the transfer is a batch. Its blocks hold two slices: the second one's number is then
/// known when the first one moves, and its list arrives meanwhile. A template, since copying a
/// number that is still on its way from one variable into another would wait for it.
template <bool kLists>
class PullProtocol {
 public:
  __device__ explicit PullProtocol(const PullArgs& args)
      : args_(args),
        counters_(reinterpret_cast<TransferCounters*>(args.counters)),
        occupancy_(reinterpret_cast<LinkOccupancy*>(args.occupancy)),
        own_kb_(kb_left(args, 0)),
        watch_(args.occupancy) {}

  __device__ void enter() {
    atomicAdd(&occupancy_->blocks[args_.rank], 1u);
    look();
  }

  /// kRest: other blocks go first on this link; land the moved slices, then `rest`, then ask again.
  /// A slice that is held already is moved first: no other block can move it. `fetch(number)`
  /// starts to bring the list of a batch's slice closer, before that slice is given out.
  template <typename Fetch>
  __device__ Take take(uint32_t& number, Fetch& fetch) {
    if (args_.shared != 0) watch_turns();
    const bool has_to_rest = must_rest(args_, seen_, own_kb_) || link_rests();
    if (!has_first_) {
      if (is_shared_) return Take::kOver;
      if (has_to_rest) return is_exhausted() ? Take::kOver : Take::kRest;
      first_ = claim();
      if (kLists) fetch_list(first_, fetch);
    }
    number = first_;
    if (number >= args_.slice_count) return Take::kOver;
    publish(number);
    hold(!has_to_rest && !is_shared_);
    if (kLists && has_first_) fetch_list(first_, fetch);
    look();
    return Take::kSlice;
  }

  /// The slice given out last has `size_bytes`.
  __device__ void count(uint32_t size_bytes) {
    ++unreported_;
    short_bytes_ += args_.slice_bytes - size_bytes;
    if (args_.pace == 0) return;
    // The result is not used, so nothing waits for it.
    atomicAdd(reinterpret_cast<uint32_t*>(args_.pace) + args_.direction, size_bytes >> 10);
    if (minds_congestion(args_) && watch_.count_slice()) watch_link();
  }

  __device__ void rest() {
    watch_.restart();
    looked_ns_ = 0;
    __nanosleep(kRestPollNs);
    publish(next());
    look();
  }

  /// Call it when every byte of every slice taken so far has been written, by threads that the
  /// caller has synchronized with. The fence makes them visible to the whole system before the
  /// count.
  __device__ void land() {
    if (unreported_ == 0) return;
    __threadfence_system();
    atomicAdd_system(&counters_->done, unreported_);
    moved_ += unreported_;
    unreported_ = 0;
  }

  /// The last block of all paths resets the state and tells the host that it is free.
  __device__ void leave() {
    publish(args_.slice_count);
    atomicSub(&occupancy_->blocks[args_.rank], 1u);
    if (moved_ != 0) atomicAdd_system(&counters_->slices[args_.path], moved_);
    if (short_bytes_ != 0)
      atomicAdd_system(reinterpret_cast<unsigned long long*>(&counters_->short_bytes[args_.path]),
                       short_bytes_);
    __threadfence_system();
    if (atomicAdd_system(&counters_->left, 1u) + 1 == args_.total_blocks) close_ticket();
  }

 private:
  __device__ uint32_t claim() { return atomicAdd_system(&counters_->next, 1u); }

  // The slices to give out after the present one.
  __device__ void hold(bool more) {
    has_first_ = more || has_second_;
    if (kLists) {
      if (has_second_)
        first_ = second_;
      else if (more)
        first_ = claim();
      has_second_ = more;
      if (more) second_ = claim();
    } else if (more) {
      first_ = claim();
    }
  }

  template <typename Fetch>
  __device__ void fetch_list(uint32_t number, Fetch& fetch) {
    if (number < args_.slice_count) fetch(number);
  }

  __device__ static uint64_t now_ns() {
    uint64_t now_ns;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now_ns));
    return now_ns;
  }

  // A slice that is held already is still moved: no other block can move it.
  __device__ void watch_turns() {
    const uint64_t now = now_ns();
    if (!is_shared_ && is_preempted(args_, looked_ns_, now)) {
      is_shared_ = args_.relays_stay == 0;
      *reinterpret_cast<volatile uint32_t*>(args_.shared) = 1;
    }
    looked_ns_ = now;
  }

  // Reads the timer only during a rest whose end has not been seen.
  __device__ bool link_rests() {
    if (seen_.rests_until_ns == ended_rest_ns_) return false;
    if (is_at_rest(now_ns(), seen_.rests_until_ns)) return true;
    ended_rest_ns_ = seen_.rests_until_ns;
    return false;
  }

  __device__ void watch_link() {
    const uint2 moved = __ldcg(reinterpret_cast<const uint2*>(args_.pace));
    const bool is_first = args_.direction == 0;
    const uint64_t now = now_ns();
    LinkSample sample;
    if (!watch_.sample(now, {is_first ? moved.x : moved.y, is_first ? moved.y : moved.x}, sample))
      return;
    auto* at = reinterpret_cast<uint2*>(args_.pace + usual_offset(args_, sample));
    const uint2 words = __ldcg(at);  // past the multiprocessor's own cache
    const UsualPace usual{__uint_as_float(words.x), words.y};
    const uint64_t rest_ns = watch_.rest_ns(usual, sample);
    const UsualPace now_usual = learned(usual, sample);
    __stcg(at, make_uint2(__float_as_uint(now_usual.ns_per_kb), now_usual.samples));
    if (rest_ns != 0) *static_cast<volatile uint64_t*>(&occupancy_->rests_until_ns) = now + rest_ns;
  }

  // The loads are under way when this returns; `take` uses their results.
  __device__ void look() {
    if (args_.rank != 0) set_words(seen_.blocks, load16(occupancy_->blocks));
    if (minds_congestion(args_))
      seen_.rests_until_ns = *static_cast<volatile uint64_t*>(&occupancy_->rests_until_ns);
    if (args_.relay_slot == kNoRelaySlot) return;
#pragma unroll
    for (uint32_t slot = 0; slot < kMaxPaths; slot += 4)
      set_words(seen_.relayed_kb + slot, load16(occupancy_->relayed_kb + slot));
  }

  __device__ static void set_words(uint32_t* seen, uint4 words) {
    seen[0] = words.x, seen[1] = words.y, seen[2] = words.z, seen[3] = words.w;
  }

  // Publishes the rest of the transfer, for other relays' transfers here.
  __device__ void publish(uint32_t next) {
    if (args_.relay_slot == kNoRelaySlot) return;
    own_kb_ = kb_left(args_, next);
    *static_cast<volatile uint32_t*>(&occupancy_->relayed_kb[args_.relay_slot]) =
        next < args_.slice_count ? own_kb_ : 0;
  }

  __device__ uint32_t next() const { return *static_cast<volatile uint32_t*>(&counters_->next); }
  __device__ bool is_exhausted() const { return next() >= args_.slice_count; }

  __device__ void close_ticket() {
    __threadfence_system();
    auto* report = reinterpret_cast<volatile TransferReport*>(args_.report);
    volatile TransferCounters* counters = counters_;
    for (uint32_t path = 0; path < args_.path_count; ++path) {
      report->slices[path] = counters->slices[path];
      report->short_bytes[path] = counters->short_bytes[path];
      counters->slices[path] = 0;
      counters->short_bytes[path] = 0;
    }
    counters->next = 0;
    counters->left = 0;
    __threadfence_system();
    report->generation = args_.generation;
  }

  const PullArgs& args_;
  TransferCounters* counters_;
  LinkOccupancy* occupancy_;
  LinkOccupancy seen_{};  // the occupancy, as last read
  uint32_t own_kb_;       // bytes left of this transfer, in KB
  LinkWatch watch_;
  uint64_t ended_rest_ns_ = 0;
  uint64_t looked_ns_ = 0;   // when the last slice was asked for
  bool is_shared_ = false;   // other contexts' kernels take turns with this one: it leaves
  bool has_first_ = false;   // slices taken and not yet given out
  bool has_second_ = false;  // never for a contiguous copy
  uint32_t first_ = 0;
  uint32_t second_ = 0;
  uint32_t unreported_ = 0;  // slices given out since the last land()
  uint32_t moved_ = 0;       // slices landed
  unsigned long long short_bytes_ = 0;
};

}  // namespace braid::cuda
