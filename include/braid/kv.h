// Start here: KV caches that rotate between GPUs and host memory, for C++ programs that link
// libbraid_kv.
//
//   using braid::Rotation;
//   auto segments = Rotation::segments(model, Rotation::GpuOrder::kBlockFirst, gpu_slots);
//   auto opened = Rotation::open({segments.value(), gpu_slots, host_slots, ranks}, engine);
//   if (!opened.ok()) return complain(opened.status().message());
//   Rotation rotation = std::move(opened).value();
//
//   if (auto ended = rotation.end_use(preempted); !ended.ok()) return complain(ended.words());
//   auto submitted = rotation.submit({preempted, resumed});  // what leaves, and what comes
//   if (!submitted.failure.ok()) ...          // the blocks of that copy stay where they were
//   auto used = rotation.begin_use(resumed);  // loaded before the next step; ask used.ok() too
//
// A Rotation knows where each block of a cache is, and copies blocks between GPU and host in
// batches: over every link if it has an Engine (copy.h), otherwise over the GPU's own link, by the
// driver or by a kernel (Mover). With an Engine too, Mover::kCopyEngines keeps kernels off the GPU.
// kv_abi.h describes, once for both, the life of a block, a step, the order of copies, ownership,
// threads, failure, and the section of the paper.
//
// Ranks in processes of their own: the leader has a Rotation, the others a RotationWorker each.
//
// This is a header over that C interface, so that no C++ type crosses the library's border. Errors:
// Status and Result; Refusal for single blocks. Sizes are bytes. C++17 and newer.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "braid/c_calls.h"
#include "braid/copy.h"
#include "braid/kv_abi.h"
#include "braid/status.h"

namespace braid {

/// The number of a block; it is never used twice.
using BlockNumber = uint64_t;

class RotationWorker;

class Rotation : detail::CCalls<braid_kv_last_error, braid_kv_last_cuda_error> {
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
  enum class Mover {
    kDriver = BRAID_KV_BY_DRIVER,
    kKernel = BRAID_KV_BY_KERNEL,
    kCopyEngines = BRAID_KV_BY_COPY_ENGINES
  };

  /// When a loaded block may be used: by the steps that begin later, or only once `poll` has
  /// reported it.
  enum class Landing { kOrdered = BRAID_KV_ORDERED, kPolled = BRAID_KV_POLLED };

  struct Options {
    std::vector<Segment> segments;
    uint32_t gpu_slots = 0;        ///< blocks of each rank's cache
    uint32_t host_slots = 0;       ///< blocks of each rank's pinned host memory
    std::vector<Rank> ranks;       ///< the GPUs of this process
    Mover mover = Mover::kDriver;  ///< with an Engine, only kCopyEngines has a meaning
    uint32_t remote_ranks = 0;     ///< in processes of their own, numbered after `ranks`
    /// How long commands may be with one of them before a report speaks of them. Not 0, if there
    /// are any.
    uint64_t report_deadline_ms = 0;
  };

  /// What goes between a leader and its workers. Valid until the next call for the same rank.
  using Bytes = List<const std::byte>;

  /// How many blocks of a list were done, and why the next one was refused.
  struct [[nodiscard]] Applied {
    size_t done = 0;
    int refusal = BRAID_KV_NOT_REFUSED;
    bool ok() const { return refusal == BRAID_KV_NOT_REFUSED; }
    /// Call it before the thread's next call.
    std::string words() const {
      return refusal == BRAID_KV_FAILED ? braid_kv_last_error() : braid_kv_refusal_words(refusal);
    }
  };

  /// Blocks that are read when the plan is submitted. So a list that ends before that, as one that
  /// a function returns, does not compile.
  class Planned : public Blocks {
   public:
    Planned() = default;
    Planned(const BlockNumber* first, size_t count) : Blocks(first, count) {}
    Planned(Blocks blocks) : Blocks(blocks) {}
    template <typename Kept, typename = std::enable_if_t<std::is_convertible_v<Kept&, Blocks>>>
    Planned(Kept& blocks) : Blocks(blocks) {}
  };
  struct Plan {
    Planned evict = {};
    Planned load = {};
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
  struct [[nodiscard]] Submitted {
    uint64_t down_bytes = 0;
    uint64_t up_bytes = 0;
    size_t evictions_left = 0;
    size_t loads_left = 0;
    std::vector<Refused> refused;
    Status failure;  ///< of a copy: its blocks stay where they were; or nothing was done, since the
                     ///< plan came after the step's `take_commands`
  };
  struct Report {
    std::vector<BlockNumber> synced;
    std::vector<BlockNumber> loaded;  ///< also those that were on the GPU all along
    std::vector<BlockNumber> failed;  ///< on another process's rank: see braid_kv_report
    std::string cause;                ///< why the first of them failed
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
  /// Copies over every link: by kernels on each GPU, or, with Mover::kCopyEngines, by copy engines
  /// on the cache's own and kernels on the others. The engine must outlive the Rotation.
  static Result<Rotation> open(const Options& options, Engine& engine) {
    return open(c_options(options, engine));
  }

  // Blocks. Each call works through its list in order, and stops at the first refusal.

  /// If the GPU has no free slot, the status' cause() is BRAID_KV_NO_GPU_SLOT.
  Result<BlockNumber> create() {
    BlockNumber block = 0;
    int refusal = BRAID_KV_NOT_REFUSED;
    Status failed = status_of(braid_kv_create(get(), &block, &refusal));
    if (!failed.ok()) return std::move(failed).with_cause(refusal);
    return block;
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
  /// For block tables: as many slots as blocks, UINT32_MAX for a block that has none.
  Status gpu_slots(Blocks blocks, uint32_t* slots) const {
    return status_of(braid_kv_gpu_slots(get(), blocks.data(), blocks.size(), slots));
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
  /// Fails if a rank of the group has failed, and from then on always.
  Result<Report> poll() {
    braid_kv_report report{};
    report.struct_bytes = sizeof report;
    if (const Status failed = status_of(braid_kv_poll(get(), &report)); !failed.ok()) return failed;
    return Report{{report.synced, report.synced + report.synced_count},
                  {report.loaded, report.loaded + report.loaded_count},
                  {report.failed, report.failed + report.failed_count},
                  report.cause};
  }
  void wait() { braid_kv_wait(get()); }

  // Ranks in processes of their own.

  /// Before `end_step`, for each such rank: what its worker is to apply. Empty: nothing.
  Result<Bytes> take_commands(size_t rank) {
    const void* bytes = nullptr;
    size_t size_bytes = 0;
    if (const Status failed = status_of(braid_kv_take_commands(get(), rank, &bytes, &size_bytes));
        !failed.ok())
      return failed;
    return Bytes(static_cast<const std::byte*>(bytes), size_bytes);
  }
  /// What that rank's worker has reported.
  Status give_report(size_t rank, Bytes report) {
    return status_of(braid_kv_give_report(get(), rank, report.data(), report.size()));
  }

  Result<Statistics> statistics() const {
    Statistics statistics{};
    statistics.struct_bytes = sizeof statistics;
    return result_of(braid_kv_get_statistics(get(), &statistics), statistics);
  }

  /// For calling the C interface with the same engine; null after it was moved from.
  braid_kv* get() const { return kv_.get(); }

 private:
  friend class RotationWorker;

  struct Close {
    void operator()(braid_kv* kv) const { braid_kv_close(kv); }
  };

  explicit Rotation(braid_kv* kv) : kv_(kv) {}

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
    all.remote_rank_count = options.remote_ranks;
    all.report_deadline_ms = options.report_deadline_ms;
    return all;
  }
  static braid_kv_options c_options(const Options& options, Engine& engine) {
    braid_kv_options all = c_options(options);
    all.engine = engine.get();
    all.copy_batch =
        options.mover == Mover::kCopyEngines ? braid_copy_batch_sparing : braid_copy_batch;
    all.last_error = braid_last_error;
    all.last_cuda_error = braid_last_cuda_error;
    all.prepare = braid_prepare;
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

/// One rank of a group whose Rotation is in another process.
///
///   auto applied = worker.apply(commands);      // came with the step
///   if (!applied.ok()) return send(worker.report().value());  // do not launch it
///   launch_model(stream);
///   if (auto ended = worker.end_step(); !ended.ok()) return stop(ended.message());
///   send(worker.report().value());              // with the step's outputs
class RotationWorker : detail::CCalls<braid_kv_last_error, braid_kv_last_cuda_error> {
 public:
  using Bytes = Rotation::Bytes;

  struct Applied {
    uint64_t step;          ///< to be launched now; 0: none
    size_t failed_batches;  ///< see braid_kv_applied
  };

  /// `options` has one rank, whose number in the group is `rank`.
  static Result<RotationWorker> open(const Rotation::Options& options, uint32_t rank) {
    return open(Rotation::c_options(options), rank);
  }
  /// Copies over every link. The engine must outlive the worker.
  static Result<RotationWorker> open(const Rotation::Options& options, uint32_t rank,
                                     Engine& engine) {
    return open(Rotation::c_options(options, engine), rank);
  }

  Result<Applied> apply(Bytes commands) {
    braid_kv_applied applied{};
    applied.struct_bytes = sizeof applied;
    if (const Status failed =
            status_of(braid_kv_worker_apply(get(), commands.data(), commands.size(), &applied));
        !failed.ok())
      return failed;
    return Applied{applied.step, applied.failed_batches};
  }
  Status end_step() { return status_of(braid_kv_worker_end_step(get())); }
  /// Valid until the next report.
  Result<Bytes> report() {
    const void* bytes = nullptr;
    size_t size_bytes = 0;
    if (const Status failed = status_of(braid_kv_worker_report(get(), &bytes, &size_bytes));
        !failed.ok())
      return failed;
    return Bytes(static_cast<const std::byte*>(bytes), size_bytes);
  }
  void wait() { braid_kv_worker_wait(get()); }
  /// Null for a slot that the rank does not have.
  const void* host_block(uint32_t host_slot) const {
    return braid_kv_worker_host_block(get(), host_slot);
  }

  /// For calling the C interface with the same worker; null after it was moved from.
  braid_kv_worker* get() const { return worker_.get(); }

 private:
  struct Close {
    void operator()(braid_kv_worker* worker) const { braid_kv_worker_close(worker); }
  };

  explicit RotationWorker(braid_kv_worker* worker) : worker_(worker) {}
  static Result<RotationWorker> open(const braid_kv_options& options, uint32_t rank) {
    braid_kv_worker* worker = nullptr;
    if (const Status failed = status_of(braid_kv_worker_open(&options, rank, &worker));
        !failed.ok())
      return failed;
    return RotationWorker(worker);
  }

  std::unique_ptr<braid_kv_worker, Close> worker_;
};

}  // namespace braid
