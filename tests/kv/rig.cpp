#include "kv/rig.h"

#include <algorithm>
#include <cstring>
#include <utility>

namespace braid::kv::test {

using braid::test::DeviceBuffer;
using braid::test::HostBuffer;

Status FaultyCopier::copy(std::span<const library::Copy> copies, CUstream stream, Urgency urgency) {
  const bool is_down = is_on_gpu_(copies.front().source);
  if (faults_.every == 0 || !(is_down ? faults_.down : faults_.up) ||
      ++batches_ % faults_.every != 0)
    return inner_->copy(copies, stream, urgency);
  ++faults_.failed;
  if (faults_.kind == CopyFaults::Kind::kHalf)
    (void)inner_->copy(copies.first(copies.size() / 2), stream, urgency);
  if (faults_.kind == CopyFaults::Kind::kEnqueued) (void)inner_->copy(copies, stream, urgency);
  return Status::of(BRAID_ERROR_CUDA, "a copy that the test has refused");
}

void KvTest::TearDown() {
  if (rotation_ == nullptr) return;
  settle();
  if (verifies_) {
    EXPECT_TRUE(checker_.conflicts().empty()) << checker_.conflicts().front();
  }
  rotation_.reset();
  workers_.clear();
}

void KvTest::open(const Opening& opening) {
  watched_ = checker_.watch(driver());
  verifies_ = opening.verifies;
  lags_ = opening.lags;
  const auto layout = Layout::of({.layers = opening.layers,
                                  .kv_heads = 1,
                                  .head_size = kSegmentBytes / 16 / 2 / 2,
                                  .block_tokens = 16},
                                 opening.order, opening.slots.gpu);
  ASSERT_TRUE(layout.ok()) << layout.status().message();
  RotationOptions options{layout.value(), opening.slots, {}};
  for (int gpu = 0; gpu < opening.ranks + opening.remote_ranks; ++gpu)
    caches_.push_back(make_cache(layout.value(), gpu, opening.slots.gpu));
  use_gpu(0);
  for (int rank = 0; rank < opening.ranks; ++rank)
    options.ranks.push_back(
        {caches_[rank].context, caches_[rank].memory->at(), caches_[rank].compute});
  options.remote_ranks = opening.remote_ranks;
  options.report_deadline_ms = opening.report_deadline_ms;
  auto opened =
      RotationEngine::open(watched_, options, copier_of(opening, layout.value(), faults_));
  ASSERT_TRUE(opened.ok()) << opened.status().message();
  rotation_ = std::move(opened).value();
  open_workers(opening, layout.value());
}

KvTest::Cache KvTest::make_cache(const Layout& layout, int gpu, uint32_t slots) {
  use_gpu(gpu);
  return {std::make_unique<DeviceBuffer>(driver(), layout.gpu_bytes(slots)), new_stream(),
          context(gpu)};
}

std::unique_ptr<Copier> KvTest::copier_of(const Opening& opening, const Layout& layout,
                                          CopyFaults& faults) {
  std::unique_ptr<Copier> copier =
      opening.copier ? opening.copier() : std::make_unique<NativeCopier>(driver());
  copier = std::make_unique<WatchedCopier>(std::move(copier), checker_,
                                           layout.segments().front().size_bytes);
  return std::make_unique<FaultyCopier>(std::move(copier), faults,
                                        [this](uint64_t address) { return is_on_gpu(address); });
}

void KvTest::open_workers(const Opening& opening, const Layout& layout) {
  for (int remote = 0; remote < opening.remote_ranks; ++remote) {
    const auto rank = static_cast<uint32_t>(opening.ranks + remote);
    const Cache& cache = caches_[rank];
    auto opened = RankWorker::open(
        watched_, {layout, opening.slots, {cache.context, cache.memory->at(), cache.compute}, rank},
        copier_of(opening, layout, remote_faults_[remote]));
    ASSERT_TRUE(opened.ok()) << opened.status().message();
    workers_.push_back({std::move(opened).value(), {}, {}});
  }
}

// ---- Remote ranks ----

// Now, or when a remote rank comes to the step.
void KvTest::launch(size_t rank, std::function<void()> launched) {
  if (rank >= first_remote()) {
    workers_[rank - first_remote()].launches.push_back(std::move(launched));
    return;
  }
  use_gpu(static_cast<int>(rank));
  launched();
  use_gpu(0);
}

Status KvTest::end_step() {
  for (size_t remote = 0; remote < workers_.size(); ++remote) take_commands(remote);
  return rotation_->end_step();
}

void KvTest::take_commands(size_t remote) {
  const auto taken = rotation_->take_commands(first_remote() + remote);
  if (!taken.ok() || taken.value().empty()) return;  // the group has failed; or nothing was asked
  const auto bytes = taken.value();
  workers_[remote].sent.push_back({{bytes.begin(), bytes.end()}, {}});
  workers_[remote].sent.back().launches.swap(workers_[remote].launches);
}

Status KvTest::carry_out(size_t remote, const Sent& sent) {
  RankWorker& rank = *workers_[remote].rank;
  const auto applied = rank.apply(sent.commands);
  if (!applied.ok()) return applied.status();
  use_gpu(static_cast<int>(first_remote() + remote));
  for (const auto& launched : sent.launches) launched();
  use_gpu(0);
  while (applied.value().step != 0 && !rank.end_step().ok()) continue;
  return {};
}

Status KvTest::give_report(size_t remote) {
  return rotation_->give_report(first_remote() + remote, workers_[remote].rank->report());
}

void KvTest::let_remote_ranks_work() {
  for (size_t remote = 0; remote < workers_.size(); ++remote) {
    std::deque<Sent>& sent = workers_[remote].sent;
    for (; !sent.empty() && (!lags_ || lag_() % 3 != 0); sent.pop_front()) {
      const Status done = carry_out(remote, sent.front());
      EXPECT_TRUE(done.ok()) << done.message();
    }
    const auto report = workers_[remote].rank->report();
    if (!lags_ || lag_() % 3 != 0) {
      EXPECT_TRUE(rotation_->give_report(first_remote() + remote, report).ok());
    }
  }
}

void KvTest::discard_readings(BlockId id) {
  for (Reading& reading : readings_)
    if (reading.id == id) reading.is_discarded = true;
}

std::vector<uint64_t> KvTest::words(size_t rank, BlockId name, uint64_t version, size_t segment) {
  std::vector<uint64_t> all(kSegmentBytes / sizeof(uint64_t));
  for (size_t i = 0; i < all.size(); ++i)
    all[i] = static_cast<uint64_t>(name) << 40 ^ version << 24 ^ rank << 20 ^ segment << 12 ^ i;
  return all;
}

bool KvTest::is_on_gpu(uint64_t address) const {
  const uint64_t size_bytes = rotation_->layout().gpu_bytes(rotation_->table().gpu().size());
  return std::any_of(caches_.begin(), caches_.end(), [&](const Cache& cache) {
    return address >= cache.memory->at() && address < cache.memory->at(size_bytes);
  });
}

// Each piece of kSegmentBytes: its address on the GPU, and its offset in the block.
std::vector<std::pair<CUdeviceptr, uint64_t>> KvTest::pieces(size_t rank, BlockId id) const {
  const auto& segments = rotation_->layout().segments();
  const std::vector<CUdeviceptr> addresses = this->segments(rank, id);
  std::vector<std::pair<CUdeviceptr, uint64_t>> all;
  for (size_t i = 0; i < segments.size(); ++i)
    for (uint64_t piece = 0; piece < segments[i].size_bytes; piece += kSegmentBytes)
      all.emplace_back(addresses[i] + piece, segments[i].host_offset_bytes + piece);
  return all;
}

// Where each segment of the block begins on the GPU.
std::vector<CUdeviceptr> KvTest::segments(size_t rank, BlockId id) const {
  const Block* block = rotation_->table().find(id);
  EXPECT_TRUE(block != nullptr && block->gpu_slot != Block::kNoSlot);
  std::vector<CUdeviceptr> all;
  for (const Segment& segment : rotation_->layout().segments())
    all.push_back(caches_[rank].memory->at(segment.gpu_base_bytes +
                                           segment.gpu_stride_bytes * block->gpu_slot));
  return all;
}

void KvTest::write(BlockId id, uint64_t version) { write(id, id, version); }

void KvTest::write(BlockId id, BlockId name, uint64_t version) {
  const std::string who = "a write of step " + std::to_string(rotation_->table().step());
  for (size_t rank = 0; rank < caches_.size(); ++rank) {
    written_.push_back(std::make_unique<HostBuffer>(driver(), rotation_->layout().block_bytes()));
    uint8_t* source = written_.back()->data();
    for (const auto& [address, offset] : pieces(rank, id))
      std::memcpy(source + offset, words(rank, name, version, offset / kSegmentBytes).data(),
                  kSegmentBytes);
    launch(rank, [this, who, source, stream = caches_[rank].compute, pieces = pieces(rank, id),
                  segments = segments(rank, id)] {
      checker_.begin_operation(stream, who);
      for (const CUdeviceptr address : segments) checker_.writes(stream, address);
      for (const auto& [address, offset] : pieces)
        MUST(driver(), cuMemcpyHtoDAsync(address, source + offset, kSegmentBytes, stream));
    });
  }
}

void KvTest::read(BlockId id, BlockId name, uint64_t version) {
  const std::string who = "a read of step " + std::to_string(rotation_->table().step());
  for (size_t rank = 0; rank < caches_.size(); ++rank) {
    readings_.push_back({std::make_unique<HostBuffer>(driver(), rotation_->layout().block_bytes()),
                         rank, id, name, version});
    uint8_t* bytes = readings_.back().bytes->data();
    launch(rank, [this, who, bytes, stream = caches_[rank].compute, pieces = pieces(rank, id),
                  segments = segments(rank, id)] {
      checker_.begin_operation(stream, who);
      for (const CUdeviceptr address : segments) checker_.reads(stream, address);
      for (const auto& [address, offset] : pieces)
        MUST(driver(), cuMemcpyDtoHAsync(bytes + offset, address, kSegmentBytes, stream));
    });
  }
}

void KvTest::read_in_a_step(std::span<const BlockId> ids, uint64_t version) {
  rotation().begin_step();
  for (const BlockId id : ids) read(id, version);
  EXPECT_TRUE(end_step().ok());
}

void KvTest::expect_on_host(BlockId id, uint64_t version) {
  for (size_t rank = 0; rank < caches_.size(); ++rank) {
    const std::byte* bytes = rank < first_remote()
                                 ? rotation_->host_block(rank, id)
                                 : workers_[rank - first_remote()].rank->host_block(
                                       rotation_->table().find(id)->host_slot);
    ASSERT_NE(bytes, nullptr);
    for (uint64_t offset = 0; offset < rotation_->layout().block_bytes(); offset += kSegmentBytes)
      ASSERT_EQ(std::memcmp(bytes + offset, words(rank, id, version, offset / kSegmentBytes).data(),
                            kSegmentBytes),
                0)
          << "block " << static_cast<uint64_t>(id) << " of rank " << rank << " at " << offset;
  }
}

BlockId KvTest::sealed_block(uint64_t version) {
  rotation_->begin_step();
  const auto created = rotation_->create();
  EXPECT_TRUE(created.ok()) << refusal_words(created.refusal) << created.failure.message();
  write(created.id, version);
  EXPECT_EQ(rotation_->seal(created.id), Refusal::kNone);
  EXPECT_TRUE(end_step().ok());
  return created.id;
}

BlockId KvTest::unused_block(uint64_t version) {
  const BlockId id = sealed_block(version);
  EXPECT_EQ(rotation_->end_use(id), Refusal::kNone);
  let_remote_ranks_work();
  return id;
}

BlockId KvTest::synced_block(uint64_t version) {
  const BlockId id = sealed_block(version);
  EXPECT_TRUE(rotation_->submit({}).failure.ok());
  settle();
  EXPECT_EQ(state(id), BlockState::kSynced);
  return id;
}

BlockId KvTest::host_only_block(uint64_t version) {
  const BlockId id = unused_block(version);
  const Submitted submitted = rotation_->submit({.evict = {&id, 1}});
  EXPECT_TRUE(submitted.failure.ok() && submitted.refused.empty());
  settle();
  EXPECT_EQ(state(id), BlockState::kHostOnly);
  return id;
}

void KvTest::load_and_read(BlockId id, uint64_t version) {
  const Submitted submitted = rotation_->submit({.load = {&id, 1}});
  EXPECT_TRUE(submitted.failure.ok() && submitted.loads_left == 0);
  EXPECT_EQ(rotation_->begin_use(id), Refusal::kNone) << "the compute stream waits for the load";
  read_in_a_step(id, version);
}

void KvTest::make_a_round_trip() {
  const BlockId id = host_only_block(3);
  expect_on_host(id, 3);
  std::array<BlockId, 7> others;
  for (BlockId& other : others) other = sealed_block(9);
  load_and_read(id, 3);
  read_in_a_step(others, 9);
  settle();
  EXPECT_EQ(state(id), BlockState::kSynced);
}

const Report& KvTest::settle() {
  const bool lagged = std::exchange(lags_, false);
  for (size_t remote = 0; remote < workers_.size(); ++remote) take_commands(remote);
  let_remote_ranks_work();
  for (const Cache& cache : caches_) synchronize(cache.compute);
  for (size_t remote = 0; remote < workers_.size(); ++remote) {
    workers_[remote].rank->wait();
    EXPECT_TRUE(give_report(remote).ok());
  }
  lags_ = lagged;
  const Report& report = rotation_->drain();
  for (const BlockId id : report.failed) discard_readings(id);
  if (!verifies_) readings_.clear();
  for (; !readings_.empty(); readings_.pop_front()) verify(readings_.front());
  written_.clear();
  return report;
}

void KvTest::verify(const Reading& reading) const {
  if (reading.is_discarded) return;
  for (uint64_t offset = 0; offset < reading.bytes->size(); offset += kSegmentBytes)
    EXPECT_EQ(std::memcmp(
                  reading.bytes->data() + offset,
                  words(reading.rank, reading.name, reading.version, offset / kSegmentBytes).data(),
                  kSegmentBytes),
              0)
        << "block " << static_cast<uint64_t>(reading.name) << " of rank " << reading.rank << " at "
        << offset;
}

}  // namespace braid::kv::test
