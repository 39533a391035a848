// Start here: KV caches that rotate between GPUs and host memory, for C++ programs that link
// libbraid_kv.
//
//   using braid::Rotation;
//   auto segments = Rotation::segments(model, Rotation::GpuOrder::kBlockFirst, gpu_slots);
//   auto opened = Rotation::open({segments.value(), gpu_slots, host_slots, ranks}, engine);
//   if (!opened.ok()) return complain(opened.status().message());
//   Rotation rotation = std::move(opened).value();
//
//   rotation.end_use(preempted);
//   rotation.submit({.evict = preempted, .load = resumed}, {.down_bytes = 64 << 20});
//   rotation.begin_use(resumed);          // their loads come before the next step
//
// A Rotation knows where each block of a cache is, and copies blocks between GPU and host in
// batches: over every link if it has an Engine (copy.h), otherwise over the GPU's own link, by the
// driver or by a kernel (Mover).
// kv_abi.h describes, once for both, the life of a block, a step, the order of copies, ownership,
// threads, failure, and the section of the paper.
//
// This is a header over that C interface, so that no C++ type crosses the library's border. Errors:
// Status and Result; Refusal for single blocks. Sizes are bytes. C++17 and newer.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "braid/copy.h"
#include "braid/kv_abi.h"
#include "braid/status.h"

namespace braid {

/// The number of a block; it is never used twice.
using BlockNumber = uint64_t;

class Rotation {
 public:
  using Model = braid_kv_model;
  using Segment = braid_kv_segment;
  using Rank = braid_kv_rank;
  using Blocks = List<const BlockNumber>;

  enum class BlockState {
    kDirty = BRAID_KV_DIRTY,
    kSealed = BRAID_KV_SEALED,
    kSyncing = BRAID_KV_SYNCING,
    kSynced = BRAID_KV_SYNCED,
    kHostOnly = BRAID_KV_HOST_ONLY,
    kLoading = BRAID_KV_LOADING,
    kLost = BRAID_KV_LOST
  };

  enum class GpuOrder { kBlockFirst = BRAID_KV_BLOCK_FIRST, kLayerFirst = BRAID_KV_LAYER_FIRST };

  /// What moves the blocks over a GPU's own link: see braid_kv_mover.
  enum class Mover { kDriver = BRAID_KV_BY_DRIVER, kKernel = BRAID_KV_BY_KERNEL };

  /// When a loaded block may be used: by the steps that begin later, or only once `poll` has
  /// reported it.
  enum class Landing { kOrdered = BRAID_KV_ORDERED, kPolled = BRAID_KV_POLLED };

  struct Options {
    std::vector<Segment> segments;
    uint32_t gpu_slots = 0;        ///< blocks of each rank's cache
    uint32_t host_slots = 0;       ///< blocks of each rank's pinned host memory
    std::vector<Rank> ranks;       ///< one for each GPU of the group
    Mover mover = Mover::kDriver;  ///< without an Engine
  };

  /// How many blocks of a list were done, and why the next one was refused.
  struct Applied {
    size_t done = 0;
    int refusal = BRAID_KV_NOT_REFUSED;
    bool ok() const { return refusal == BRAID_KV_NOT_REFUSED; }
    /// Call it before the thread's next call.
    std::string words() const {
      return refusal == BRAID_KV_FAILED ? braid_kv_last_error() : braid_kv_refusal_words(refusal);
    }
  };

  struct Plan {
    Blocks evict = {};
    Blocks load = {};
    Landing landing = Landing::kOrdered;
    bool writes_through = true;
  };
  struct Budget {
    uint64_t down_bytes = BRAID_KV_NO_LIMIT;
    uint64_t up_bytes = BRAID_KV_NO_LIMIT;
  };
  struct Refused {
    BlockNumber block;
    int refusal;
  };
  struct Submitted {
    uint64_t down_bytes = 0;
    uint64_t up_bytes = 0;
    size_t evictions_left = 0;
    size_t loads_left = 0;
    std::vector<Refused> refused;
    Status failure;  ///< of a copy: its blocks stay where they were
  };
  struct Report {
    std::vector<BlockNumber> synced;
    std::vector<BlockNumber> loaded;
  };
  struct Block {
    BlockState state;
    uint32_t gpu_slot;  ///< UINT32_MAX: none
    uint32_t host_slot;
    uint32_t references;
    uint32_t users;
  };
  using Statistics = braid_kv_statistics;

  /// The segments of a cache of this model with `gpu_slots` blocks.
  static Result<std::vector<Segment>> segments(const Model& model, GpuOrder order,
                                               uint32_t gpu_slots) {
    size_t count = 0;
    const int number = static_cast<int>(order);
    if (const Status failed =
            status_of(braid_kv_segments(&model, number, gpu_slots, nullptr, 0, &count));
        !failed.ok())
      return failed;
    std::vector<Segment> all(count);
    return result_of(braid_kv_segments(&model, number, gpu_slots, all.data(), count, &count), all);
  }

  /// Copies over each GPU's own link, by `options.mover`.
  static Result<Rotation> open(const Options& options) { return open(c_options(options)); }
  /// Copies over every link. The engine must outlive the Rotation.
  static Result<Rotation> open(const Options& options, Engine& engine) {
    braid_kv_options all = c_options(options);
    all.engine = engine.get();
    all.copy_batch = braid_copy_batch;
    all.last_error = braid_last_error;
    all.last_cuda_error = braid_last_cuda_error;
    return open(all);
  }

  // Blocks. Each call works through its list in order, and stops at the first refusal.

  Result<BlockNumber> create() {
    BlockNumber block = 0;
    return result_of(braid_kv_create(get(), &block, nullptr), block);
  }
  Applied add_reference(Blocks blocks) { return apply(BRAID_KV_ADD_REFERENCE, blocks); }
  Applied release(Blocks blocks) { return apply(BRAID_KV_RELEASE, blocks); }
  Applied begin_use(Blocks blocks) { return apply(BRAID_KV_BEGIN_USE, blocks); }
  Applied end_use(Blocks blocks) { return apply(BRAID_KV_END_USE, blocks); }
  Applied seal(Blocks blocks) { return apply(BRAID_KV_SEAL, blocks); }
  Applied reopen(Blocks blocks) { return apply(BRAID_KV_REOPEN, blocks); }
  Applied drop_host(Blocks blocks) { return apply(BRAID_KV_DROP_HOST, blocks); }
  Applied lose(Blocks blocks) { return apply(BRAID_KV_LOSE, blocks); }

  Result<Block> find(BlockNumber block) const {
    braid_kv_block found{};
    found.struct_bytes = sizeof found;
    if (const Status failed = status_of(braid_kv_find(get(), block, &found)); !failed.ok())
      return failed;
    return Block{static_cast<BlockState>(found.state), found.gpu_slot, found.host_slot,
                 found.references, found.users};
  }
  /// Null if the host has no copy.
  const void* host_block(size_t rank, BlockNumber block) const {
    return braid_kv_host_block(get(), rank, block);
  }

  // Steps and copies.

  uint64_t begin_step() { return braid_kv_begin_step(get()); }
  Status end_step() { return status_of(braid_kv_end_step(get())); }

  /// Never blocks. The answer holds failures.
  Submitted submit(const Plan& plan) { return submit(plan, Budget()); }
  Submitted submit(const Plan& plan, const Budget& budget) {
    const braid_kv_plan all{sizeof(braid_kv_plan),
                            plan.evict.data(),
                            plan.evict.size(),
                            plan.load.data(),
                            plan.load.size(),
                            static_cast<int>(plan.landing),
                            plan.writes_through ? 0 : 1,
                            budget.down_bytes,
                            budget.up_bytes};
    braid_kv_submitted answer{};
    answer.struct_bytes = sizeof answer;
    Submitted submitted;
    submitted.failure = status_of(braid_kv_submit(get(), &all, &answer));
    submitted.down_bytes = answer.down_bytes;
    submitted.up_bytes = answer.up_bytes;
    submitted.evictions_left = answer.evictions_left;
    submitted.loads_left = answer.loads_left;
    for (size_t i = 0; i < answer.refused_count; ++i)
      submitted.refused.push_back({answer.refused[i], answer.refusals[i]});
    return submitted;
  }
  /// Fails if a GPU of the group has failed, and from then on always.
  Result<Report> poll() {
    braid_kv_report report{};
    report.struct_bytes = sizeof report;
    if (const Status failed = status_of(braid_kv_poll(get(), &report)); !failed.ok()) return failed;
    return Report{{report.synced, report.synced + report.synced_count},
                  {report.loaded, report.loaded + report.loaded_count}};
  }
  void wait() { braid_kv_wait(get()); }

  Result<Statistics> statistics() const {
    Statistics statistics{};
    statistics.struct_bytes = sizeof statistics;
    return result_of(braid_kv_get_statistics(get(), &statistics), statistics);
  }

  /// For calling the C interface with the same engine; null after it was moved from.
  braid_kv* get() const { return kv_.get(); }

 private:
  struct Close {
    void operator()(braid_kv* kv) const { braid_kv_close(kv); }
  };

  explicit Rotation(braid_kv* kv) : kv_(kv) {}

  static Status status_of(braid_status status) {
    return status == BRAID_OK
               ? Status()
               : Status::of(status, braid_kv_last_error(), braid_kv_last_cuda_error());
  }
  /// `value` is what the call has filled in.
  template <typename Value>
  static Result<Value> result_of(braid_status status, Value& value) {
    if (status != BRAID_OK) return status_of(status);
    return std::move(value);
  }

  static braid_kv_options c_options(const Options& options) {
    braid_kv_options all{};
    all.struct_bytes = sizeof all;
    all.segments = options.segments.data();
    all.segment_count = options.segments.size();
    all.gpu_slots = options.gpu_slots;
    all.host_slots = options.host_slots;
    all.ranks = options.ranks.data();
    all.rank_count = options.ranks.size();
    all.mover = static_cast<int>(options.mover);
    return all;
  }
  static Result<Rotation> open(const braid_kv_options& options) {
    braid_kv* kv = nullptr;
    if (const Status failed = status_of(braid_kv_open(&options, &kv)); !failed.ok()) return failed;
    return Rotation(kv);
  }
  Applied apply(braid_kv_operation operation, Blocks blocks) {
    Applied applied;
    applied.refusal = braid_kv_apply(get(), operation, blocks.data(), blocks.size(), &applied.done);
    return applied;
  }

  std::unique_ptr<braid_kv, Close> kv_;
};

}  // namespace braid
