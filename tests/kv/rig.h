// What the tests of rotation share: a server whose GPUs have small caches, steps that write words
// into blocks and read them again, and copies that can be watched and made to fail.
//
// A step writes (block, version, offset) words into every segment of a block, and reads blocks into
// memory that is verified whole once the step has ended. Both are copies in the compute stream:
// ordered there as kernels would be.
//
// Some ranks may be remote: each has a worker here, to which commands and steps travel as to
// another process, late and by a random number of steps if the test wants it.
#pragma once

#include <array>
#include <deque>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "kv/order_checker.h"
#include "kv/rank_worker.h"
#include "kv/rotation_engine.h"
#include "support/server.h"

namespace braid::kv::test {

/// Which copies fail, and how.
struct CopyFaults {
  enum class Kind {
    kRefused,   ///< nothing is in the stream
    kHalf,      ///< half of the batch is
    kEnqueued,  ///< all of it is, and the driver says no all the same
  };
  Kind kind = Kind::kRefused;
  uint64_t every = 0;  ///< every n-th batch of these directions; 0: none
  bool down = true;
  bool up = true;
  uint64_t failed = 0;  ///< so many have
};

class FaultyCopier final : public Copier {
 public:
  /// `is_on_gpu` tells an address of a cache.
  FaultyCopier(std::unique_ptr<Copier> inner, CopyFaults& faults,
               std::function<bool(uint64_t)> is_on_gpu)
      : inner_(std::move(inner)), faults_(faults), is_on_gpu_(std::move(is_on_gpu)) {}
  Status copy(std::span<const library::Copy> copies, CUstream stream, Urgency urgency) override;

 private:
  std::unique_ptr<Copier> inner_;
  CopyFaults& faults_;  // the test's, which changes them
  std::function<bool(uint64_t)> is_on_gpu_;
  uint64_t batches_ = 0;
};

class KvTest : public braid::test::ServerTest {
 protected:
  KvTest() { gpus_needed = 1; }

  static constexpr uint64_t kSegmentBytes = 1024;

  struct Cache {
    std::unique_ptr<braid::test::DeviceBuffer> memory;
    CUstream compute = nullptr;
    CUcontext context = nullptr;
  };
  struct Opening {
    BlockTable::Slots slots{8, 8};
    uint32_t layers = 4;
    GpuOrder order = GpuOrder::kLayerFirst;
    int ranks = 1;
    int remote_ranks = 0;  ///< after these
    uint64_t report_deadline_ms = 3'600'000;
    bool lags = false;     ///< remote ranks carry out steps late, and reports get lost
    bool verifies = true;  ///< bytes and orders; a test that plants a race does not
    /// The copier of the test's choice; else the driver's own batches.
    std::function<std::unique_ptr<Copier>()> copier = {};
  };

  void TearDown() override;

  void open(const Opening& opening);
  RotationEngine& rotation() { return *rotation_; }
  CUstream compute(size_t rank) const { return caches_[rank].compute; }
  BlockState state(BlockId id) const { return rotation_->table().find(id)->state; }
  RankWorker& worker(size_t remote) { return *workers_[remote].rank; }
  /// What steps have read of the block so far is not verified: its load has failed.
  void discard_readings(BlockId id);

  /// A step that writes `version` into the blocks, or reads them and expects it. Between begin_step
  /// and end_step.
  void write(BlockId id, uint64_t version);
  void read(BlockId id, uint64_t version) { read(id, id, version); }
  /// Written under another block's name: a block that is computed again.
  void write(BlockId id, BlockId name, uint64_t version);
  void read(BlockId id, BlockId name, uint64_t version);
  /// The end of a step that has been begun, and its launch on remote ranks.
  Status end_step();
  /// Remote ranks carry out what they have, all of it or as much as chance wants, and report.
  void let_remote_ranks_work();
  /// What a remote rank has not carried out yet: whole messages.
  struct Sent {
    std::vector<std::byte> commands;
    std::vector<std::function<void()>> launches;
  };
  /// Applies one, and launches its step. The result of the apply.
  Status carry_out(size_t remote, const Sent& sent);
  Status give_report(size_t remote);

  /// One step that reads the blocks.
  void read_in_a_step(std::span<const BlockId> ids, uint64_t version);
  void read_in_a_step(BlockId id, uint64_t version) { read_in_a_step({&id, 1}, version); }
  /// Loads a block, and reads it in the next step.
  void load_and_read(BlockId id, uint64_t version);
  /// What a block holds on the host is `version`, on each rank.
  void expect_on_host(BlockId id, uint64_t version);

  /// One step that writes the block, which is sealed then.
  BlockId sealed_block(uint64_t version);
  /// The same block without a user.
  BlockId unused_block(uint64_t version);
  /// A sealed one that the host has too.
  BlockId synced_block(uint64_t version);
  /// One that has left the GPU.
  BlockId host_only_block(uint64_t version);
  /// With 8 slots on the GPU: a block leaves, others come to where it was, and it comes back as it
  /// was.
  void make_a_round_trip();
  /// Until all is quiet; what was read is verified.
  const Report& settle();

  OrderChecker checker_;
  CopyFaults faults_;  // of the ranks of this process
  std::array<CopyFaults, 4> remote_faults_;
  std::mt19937_64 lag_{1};  // how late remote ranks are

 private:
  struct Reading {
    std::unique_ptr<braid::test::HostBuffer> bytes;
    size_t rank;
    BlockId id;
    BlockId name;
    uint64_t version;
    bool is_discarded = false;
  };
  struct Remote {
    std::unique_ptr<RankWorker> rank;
    std::deque<Sent> sent;
    std::vector<std::function<void()>> launches;  // of the step that is open
  };

  size_t first_remote() const { return caches_.size() - workers_.size(); }
  Cache make_cache(const Layout& layout, int gpu, uint32_t slots);
  std::unique_ptr<Copier> copier_of(const Opening& opening, const Layout& layout,
                                    CopyFaults& faults);
  void open_workers(const Opening& opening, const Layout& layout);
  void launch(size_t rank, std::function<void()> launched);
  void take_commands(size_t remote);
  void verify(const Reading& reading) const;
  bool is_on_gpu(uint64_t address) const;
  std::vector<std::pair<CUdeviceptr, uint64_t>> pieces(size_t rank, BlockId id) const;
  std::vector<CUdeviceptr> segments(size_t rank, BlockId id) const;
  static std::vector<uint64_t> words(size_t rank, BlockId name, uint64_t version, size_t segment);

  bool verifies_ = true;
  bool lags_ = false;
  cuda::Driver watched_;
  std::vector<Cache> caches_;
  std::unique_ptr<RotationEngine> rotation_;
  std::vector<Remote> workers_;
  std::vector<std::unique_ptr<braid::test::HostBuffer>> written_;
  std::deque<Reading> readings_;
};

}  // namespace braid::kv::test
