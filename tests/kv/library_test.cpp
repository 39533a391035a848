// libbraid_kv.so as programs use it: kv.h over kv_abi.h.
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "kv/library_rig.h"

namespace braid::test {
namespace {

TEST_F(KvLibraryTest, ReportsAndRefusals) {
  auto opened = Rotation::open(options_);
  Rotation& rotation = opened.value();
  rotation.begin_step();
  std::vector<BlockNumber> blocks;
  for (uint32_t i = 0; i < kGpuSlots; ++i) blocks.push_back(rotation.create().value());
  EXPECT_EQ(rotation.create().status().message(), "no slot of the GPU is free");
  EXPECT_EQ(rotation.create().status().cause(), BRAID_KV_NO_GPU_SLOT);
  uint64_t none = 0;
  int refusal = 0;
  EXPECT_EQ(braid_kv_create(rotation.get(), &none, &refusal), BRAID_ERROR_ARGUMENT);
  EXPECT_EQ(refusal, BRAID_KV_NO_GPU_SLOT);
  for (const BlockNumber block : blocks) write(rotation, block, 1);
  EXPECT_TRUE(rotation.seal({blocks.data(), 2}).ok());
  ASSERT_TRUE(rotation.end_step().ok());
  const Rotation::Applied sealed = rotation.seal({blocks.data() + 1, 2});
  EXPECT_EQ(sealed.done, 0u);
  EXPECT_EQ(sealed.refusal, BRAID_KV_WRONG_STATE);
  EXPECT_EQ(rotation.submit({}).down_bytes, 2 * block_bytes_);
  rotation.wait();
  EXPECT_EQ(rotation.poll().value().synced, std::vector(blocks.begin(), blocks.begin() + 2));
  EXPECT_NE(rotation.host_block(0, blocks[0]), nullptr);
  EXPECT_EQ(rotation.host_block(0, blocks[2]), nullptr);
  EXPECT_EQ(rotation.host_block(1, blocks[0]), nullptr);

  ASSERT_TRUE(rotation.end_use({blocks.data() + 2, 1}).ok());
  const Rotation::Submitted dirty = rotation.submit({.evict = {blocks.data() + 2, 1}});
  ASSERT_EQ(dirty.refused.size(), 1u);
  EXPECT_EQ(dirty.refused[0].block, blocks[2]);
  EXPECT_EQ(dirty.refused[0].refusal, BRAID_KV_WRONG_STATE);
}

TEST_F(KvLibraryTest, MistakesAreNamed) {
  EXPECT_EQ(Rotation::segments({}, Rotation::GpuOrder::kBlockFirst, 8).status().message(),
            "layers is 0. Give the model's own number");
  options_.gpu_slots = 0;
  options_.mover = static_cast<Rotation::Mover>(7);
  EXPECT_NE(Rotation::open(options_).status().message().find("mover is 7"), std::string::npos);
  options_.mover = Rotation::Mover::kDriver;
  EXPECT_NE(Rotation::open(options_).status().message().find("gpu_slots"), std::string::npos);
  options_.gpu_slots = kGpuSlots;
  options_.segments[0].gpu_stride_bytes = uint64_t{1} << 47;
  EXPECT_NE(Rotation::open(options_).status().message().find("gpu_slots"), std::string::npos);
  braid_kv* kv = nullptr;
  braid_kv_options options{};
  EXPECT_EQ(braid_kv_open(&options, &kv), BRAID_ERROR_ARGUMENT);
  EXPECT_STREQ(braid_kv_last_error(),
               "braid_kv_options: struct_bytes is 0. Set it to sizeof(braid_kv_options)");
  EXPECT_EQ(braid_kv_poll(nullptr, nullptr), BRAID_ERROR_ARGUMENT);
  EXPECT_EQ(braid_kv_apply(nullptr, BRAID_KV_SEAL, nullptr, 0, nullptr), BRAID_KV_WRONG_STATE);
  EXPECT_STREQ(braid_kv_refusal_words(BRAID_KV_SHARED), "other requests need what the block holds");
  for (const int unknown : {77, 256, -1})
    EXPECT_STREQ(braid_kv_refusal_words(unknown), "unknown") << unknown;
  braid_kv_close(nullptr);
}

// A leader without a GPU of its own, and the worker of its only rank.
TEST_F(KvLibraryTest, ALeaderAndAWorker) {
  auto worker = RotationWorker::open(options_, 0).value();
  options_.ranks.clear();
  options_.remote_ranks = 1;
  options_.report_deadline_ms = 3'600'000;
  auto rotation = Rotation::open(options_).value();
  const auto launch = [&](auto launched) {
    const auto applied = worker.apply(rotation.take_commands(0).value());
    ASSERT_TRUE(applied.ok()) << applied.status().message();
    launched();
    if (applied.value().step != 0) {
      EXPECT_TRUE(worker.end_step().ok());
      EXPECT_TRUE(rotation.end_step().ok());
    }
    synchronize(compute_);
    worker.wait();
    EXPECT_TRUE(rotation.give_report(0, worker.report().value()).ok());
  };
  EXPECT_EQ(rotation.begin_step(), 1u);
  const BlockNumber block = rotation.create().value();
  ASSERT_TRUE(rotation.seal({&block, 1}).ok());
  launch([&] { write(rotation, block, 7); });
  ASSERT_TRUE(rotation.poll().ok());
  ASSERT_TRUE(rotation.end_use({&block, 1}).ok());
  ASSERT_TRUE(rotation.submit({.evict = {&block, 1}}).failure.ok());
  launch([] {});
  EXPECT_EQ(rotation.poll().value().synced, std::vector{block});
  const uint32_t slot = rotation.find(block).value().host_slot;
  uint32_t gpu_slot = 0;
  ASSERT_TRUE(rotation.gpu_slots({&block, 1}, &gpu_slot).ok());
  EXPECT_EQ(gpu_slot, UINT32_MAX) << "it is on the host";
  EXPECT_EQ(rotation.gpu_slots({&block, 1}, nullptr).message(),
            "braid_kv_gpu_slots: a list is null and has a count");
  ASSERT_NE(worker.host_block(slot), nullptr);
  EXPECT_EQ(*static_cast<const uint8_t*>(worker.host_block(slot)), 7);
  EXPECT_EQ(worker.host_block(kHostSlots), nullptr);
  EXPECT_EQ(rotation.host_block(0, block), nullptr) << "another process has it";
  ASSERT_TRUE(rotation.submit({.load = {&block, 1}}).failure.ok());
  ASSERT_TRUE(rotation.begin_use({&block, 1}).ok());
  rotation.begin_step();
  launch([&] { EXPECT_TRUE(holds(rotation, block, 7)); });
  EXPECT_EQ(rotation.poll().value().loaded, std::vector{block});
  EXPECT_EQ(rotation.take_commands(0).value().size(), 0u) << "nothing is to be sent";
}

TEST_F(KvLibraryTest, MistakesWithWorkersAreNamed) {
  const auto words = [](const Status& status) {
    EXPECT_EQ(status.code(), BRAID_ERROR_ARGUMENT) << status.message();
    return status.message();
  };
  const std::vector<Rotation::Rank> ranks = std::exchange(options_.ranks, {});
  EXPECT_NE(words(RotationWorker::open(options_, 0).status()).find("a worker has 0 ranks"),
            std::string::npos);
  options_.remote_ranks = 1;
  EXPECT_NE(words(Rotation::open(options_).status()).find("report_deadline_ms is 0"),
            std::string::npos);
  options_.report_deadline_ms = 1000;
  auto leader = Rotation::open(options_).value();
  options_.ranks = ranks;
  EXPECT_NE(words(RotationWorker::open(options_, 0).status()).find("1 in other processes"),
            std::string::npos);
  options_.remote_ranks = 0;
  auto worker = RotationWorker::open(options_, 0).value();
  const std::array<std::byte, 3> garbage{};
  EXPECT_NE(words(worker.apply(garbage).status()).find("these 3 bytes"), std::string::npos);
  EXPECT_NE(words(leader.give_report(0, garbage)).find("these 3 bytes"), std::string::npos);
  EXPECT_NE(words(leader.take_commands(1).status()).find("no rank 1"), std::string::npos);
  EXPECT_NE(words(worker.end_step()).find("no step is open"), std::string::npos);
  leader.begin_step();
  EXPECT_NE(words(leader.end_step()).find("were not taken"), std::string::npos);
  ASSERT_TRUE(leader.take_commands(0).ok());
  const std::string late =
      "the commands of step 1 are taken, so it cannot come behind another copy. Call create, "
      "reopen and submit before them, or after end_step";
  EXPECT_EQ(words(leader.create().status()), late);
  EXPECT_EQ(words(leader.submit({}).failure), late);
  const BlockNumber block = 0;
  const Rotation::Applied reopened = leader.reopen({&block, 1});
  EXPECT_EQ(reopened.refusal, BRAID_KV_FAILED);
  EXPECT_EQ(reopened.words(), late);
  EXPECT_TRUE(leader.end_step().ok());
  EXPECT_TRUE(leader.create().ok());
  EXPECT_EQ(braid_kv_worker_apply(worker.get(), nullptr, 0, nullptr), BRAID_ERROR_ARGUMENT);
  EXPECT_EQ(braid_kv_worker_report(nullptr, nullptr, nullptr), BRAID_ERROR_ARGUMENT);
  braid_kv_worker_close(nullptr);
}

TEST_F(KvLibraryTest, AWorkerIsDeadInAChildAndSaysSo) {
  auto worker = std::make_unique<RotationWorker>(RotationWorker::open(options_, 0).value());
  const pid_t child = fork();
  if (child == 0) {
    const bool says_so = worker->report().status().message().find("parent") != std::string::npos &&
                         worker->end_step().message().find("parent") != std::string::npos &&
                         worker->host_block(0) == nullptr;
    worker->wait();
    worker.reset();
    _exit(says_so ? 0 : 1);
  }
  int status = -1;
  waitpid(child, &status, 0);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
  EXPECT_TRUE(worker->report().ok());
}

// Its contexts and its pinned memory are the parent's: a child that copied, or closed it, would
// reach into the parent's driver.
TEST_F(KvLibraryTest, AnEngineIsDeadInAChildAndSaysSo) {
  auto opened = std::make_unique<Rotation>(Rotation::open(options_).value());
  Rotation& rotation = *opened;
  rotation.begin_step();
  const BlockNumber block = rotation.create().value();
  write(rotation, block, 1);
  ASSERT_TRUE(rotation.seal({&block, 1}).ok());
  ASSERT_TRUE(rotation.end_step().ok());
  const pid_t child = fork();
  if (child == 0) {
    const auto is_refused = [](const std::string& words) {
      return words.find("parent") != std::string::npos;
    };
    const Rotation::Applied used = rotation.end_use({&block, 1});
    const bool says_so = is_refused(rotation.submit({}).failure.message()) &&
                         is_refused(rotation.poll().status().message()) &&
                         used.refusal == BRAID_KV_FAILED && is_refused(used.words()) &&
                         rotation.begin_step() == 0 && rotation.host_block(0, block) == nullptr;
    rotation.wait();
    opened.reset();
    _exit(says_so ? 0 : 1);
  }
  int status = -1;
  waitpid(child, &status, 0);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
  EXPECT_EQ(rotation.submit({}).down_bytes, block_bytes_);
}

// As engines keep a cache: a segment for each layer.
TEST_F(KvLibraryTest, LayerFirstSegments) {
  const auto segments =
      Rotation::segments(kModel, Rotation::GpuOrder::kLayerFirst, kGpuSlots).value();
  ASSERT_EQ(segments.size(), kModel.layers);
  EXPECT_EQ(segments[1].gpu_base_bytes, kGpuSlots * segments[0].size_bytes);
  size_t count = 0;
  braid_kv_segment one{};
  EXPECT_EQ(braid_kv_segments(&kModel, BRAID_KV_LAYER_FIRST, kGpuSlots, &one, 1, &count),
            BRAID_ERROR_ARGUMENT);
  EXPECT_EQ(count, kModel.layers);
}

}  // namespace
}  // namespace braid::test
