#include "kv/rig.h"

#include <algorithm>
#include <cstring>

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
  return Status::error("a copy that the test has refused");
}

void KvTest::TearDown() {
  if (rotation_ == nullptr) return;
  settle();
  if (verifies_) {
    EXPECT_TRUE(checker_.conflicts().empty()) << checker_.conflicts().front();
  }
  rotation_.reset();
}

void KvTest::open(const Opening& opening) {
  watched_ = checker_.watch(driver());
  verifies_ = opening.verifies;
  const auto layout = Layout::of({.layers = opening.layers,
                                  .kv_heads = 1,
                                  .head_size = kSegmentBytes / 16 / 2 / 2,
                                  .block_tokens = 16},
                                 opening.order, opening.slots.gpu);
  ASSERT_TRUE(layout.ok()) << layout.status().message();
  RotationOptions options{layout.value(), opening.slots, {}};
  for (int gpu = 0; gpu < opening.ranks; ++gpu) {
    use_gpu(gpu);
    Cache cache{
        std::make_unique<DeviceBuffer>(driver(), layout.value().gpu_bytes(opening.slots.gpu)),
        new_stream(), context(gpu)};
    options.ranks.push_back({cache.context, cache.memory->at(), cache.compute});
    caches_.push_back(std::move(cache));
  }
  use_gpu(0);
  std::unique_ptr<Copier> copier =
      opening.copier ? opening.copier() : std::make_unique<NativeCopier>(driver());
  copier = std::make_unique<WatchedCopier>(std::move(copier), checker_,
                                           layout.value().segments().front().size_bytes);
  copier = std::make_unique<FaultyCopier>(std::move(copier), faults_,
                                          [this](uint64_t address) { return is_on_gpu(address); });
  auto opened = RotationEngine::open(watched_, options, std::move(copier));
  ASSERT_TRUE(opened.ok()) << opened.status().message();
  rotation_ = std::move(opened).value();
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

// `visit(address on the GPU, offset in the block)`, for each piece of kSegmentBytes.
template <typename Visit>
void KvTest::for_each_segment(size_t rank, BlockId id, const Visit& visit) {
  const Block* block = rotation_->table().find(id);
  ASSERT_NE(block, nullptr);
  ASSERT_NE(block->gpu_slot, Block::kNoSlot);
  const auto& segments = rotation_->layout().segments();
  for (size_t i = 0; i < segments.size(); ++i)
    for (uint64_t piece = 0; piece < segments[i].size_bytes; piece += kSegmentBytes)
      visit(caches_[rank].memory->at(segments[i].gpu_base_bytes +
                                     segments[i].gpu_stride_bytes * block->gpu_slot + piece),
            segments[i].host_offset_bytes + piece);
}

void KvTest::write(BlockId id, uint64_t version) { write(id, id, version); }

void KvTest::write(BlockId id, BlockId name, uint64_t version) {
  for (size_t rank = 0; rank < caches_.size(); ++rank) {
    use_gpu(static_cast<int>(rank));
    const CUstream stream = caches_[rank].compute;
    checker_.begin_operation(stream,
                             "a write of step " + std::to_string(rotation_->table().step()));
    written_.push_back(std::make_unique<HostBuffer>(driver(), rotation_->layout().block_bytes()));
    uint8_t* source = written_.back()->data();
    for (const Segment& segment : rotation_->layout().segments())
      checker_.writes(stream, caches_[rank].memory->at(segment.gpu_base_bytes +
                                                       segment.gpu_stride_bytes *
                                                           rotation_->table().find(id)->gpu_slot));
    for_each_segment(rank, id, [&](CUdeviceptr address, uint64_t offset) {
      const auto all = words(rank, name, version, offset / kSegmentBytes);
      std::memcpy(source + offset, all.data(), kSegmentBytes);
      MUST(driver(), cuMemcpyHtoDAsync(address, source + offset, kSegmentBytes, stream));
    });
  }
  use_gpu(0);
}

void KvTest::read(BlockId id, BlockId name, uint64_t version) {
  for (size_t rank = 0; rank < caches_.size(); ++rank) {
    use_gpu(static_cast<int>(rank));
    const CUstream stream = caches_[rank].compute;
    checker_.begin_operation(stream, "a read of step " + std::to_string(rotation_->table().step()));
    Reading reading{std::make_unique<HostBuffer>(driver(), rotation_->layout().block_bytes()), rank,
                    name, version};
    for (const Segment& segment : rotation_->layout().segments())
      checker_.reads(stream, caches_[rank].memory->at(segment.gpu_base_bytes +
                                                      segment.gpu_stride_bytes *
                                                          rotation_->table().find(id)->gpu_slot));
    for_each_segment(rank, id, [&](CUdeviceptr address, uint64_t offset) {
      MUST(driver(),
           cuMemcpyDtoHAsync(reading.bytes->data() + offset, address, kSegmentBytes, stream));
    });
    readings_.push_back(std::move(reading));
  }
  use_gpu(0);
}

void KvTest::read_in_a_step(std::span<const BlockId> ids, uint64_t version) {
  rotation().begin_step();
  for (const BlockId id : ids) read(id, version);
  EXPECT_TRUE(rotation().end_step().ok());
}

void KvTest::expect_on_host(BlockId id, uint64_t version) {
  for (size_t rank = 0; rank < caches_.size(); ++rank) {
    const std::byte* bytes = rotation_->host_block(rank, id);
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
  EXPECT_TRUE(rotation_->end_step().ok());
  return created.id;
}

const Report& KvTest::settle() {
  for (const Cache& cache : caches_) synchronize(cache.compute);
  const Report& report = rotation_->drain();
  if (!verifies_) readings_.clear();
  for (; !readings_.empty(); readings_.pop_front()) {
    const Reading& reading = readings_.front();
    for (uint64_t offset = 0; offset < reading.bytes->size(); offset += kSegmentBytes)
      EXPECT_EQ(
          std::memcmp(
              reading.bytes->data() + offset,
              words(reading.rank, reading.name, reading.version, offset / kSegmentBytes).data(),
              kSegmentBytes),
          0)
          << "block " << static_cast<uint64_t>(reading.name) << " of rank " << reading.rank
          << " at " << offset;
  }
  written_.clear();
  return report;
}

}  // namespace braid::kv::test
