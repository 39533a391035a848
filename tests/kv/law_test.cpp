// The law of docs/architecture.md, for rotation: a call waits for nothing, and what it has put into
// the program's streams needs no further call. The emulated driver has the lock of a context as
// measured, so code that breaks the law hangs here.
#include <array>

#include "kv/braid_copier.h"
#include "kv/kernel_copier.h"
#include "kv/rig.h"
#include "support/gate.h"

namespace braid::kv::test {
namespace {

using braid::test::DeviceBuffer;
using braid::test::Gate;

enum class Over { kOneLink, kOneLinkByKernel, kEveryLink, kEveryLinkByCopyEngines };

bool is_over_every_link(Over over) { return over >= Over::kEveryLink; }

class LawTest : public KvTest, public ::testing::WithParamInterface<Over> {
 protected:
  LawTest() { gpus_needed = is_over_every_link(GetParam()) ? 2 : 1; }

  void TearDown() override {
    KvTest::TearDown();
    braid_close(engine_);
  }
  void open_over_tested() {
    Opening opening{.slots = {2, 8}, .layers = 64};
    if (GetParam() == Over::kOneLinkByKernel)
      opening.copier = [this] {
        auto copier = KernelCopier::open(driver(), std::array{context(0)});
        EXPECT_TRUE(copier.ok()) << copier.status().message();
        copier_ = copier.value().get();
        return std::move(copier).value();
      };
    if (is_over_every_link(GetParam())) {
      const braid_option every_size{"BRAID_THRESHOLD", "1"};
      const braid_options options{sizeof options, &every_size, 1};
      ASSERT_EQ(braid_open(&options, &engine_), BRAID_OK) << braid_last_error();
      opening.copier = [this] {
        return std::make_unique<BraidCopier>(calls_of(
            engine_, GetParam() == Over::kEveryLink ? braid_copy_batch : braid_copy_batch_sparing));
      };
    }
    open(opening);
  }
  // A step that the CPU holds, then one whose block comes into the first one's slot.
  void exchange_behind(Gate& gate) {
    const BlockId cold = host_only_block(1);
    const std::array<BlockId, 2> hot{sealed_block(2), sealed_block(3)};
    rotation().submit({});
    settle();
    gate.hold(compute(0));
    for (const BlockId id : hot) read_in_a_step(id, 2 + (id == hot[1] ? 1 : 0));
    for (const BlockId id : hot) (void)rotation().end_use(id);
    const Submitted submitted = rotation().submit({.evict = hot, .load = {&cold, 1}});
    EXPECT_EQ(submitted.loads_left, 0u);
    EXPECT_EQ(rotation().begin_use(cold), Refusal::kNone);
    read_in_a_step(cold, 1);
    const BlockId fresh = rotation().create().id;
    rotation().begin_step();
    write(fresh, 4);
    EXPECT_EQ(rotation().seal(fresh), Refusal::kNone);
    EXPECT_TRUE(rotation().end_step().ok());
    EXPECT_TRUE(rotation().submit({}).failure.ok());
    EXPECT_TRUE(rotation().poll().loaded.empty());
  }

  braid_engine* engine_ = nullptr;
  const KernelCopier* copier_ = nullptr;  // the rotation engine's
};

// The program's stream is held meanwhile: a call that waited for it would not return.
TEST_P(LawTest, NoCallWaits) {
  open_over_tested();
  Gate gate(driver());
  exchange_behind(gate);
  gate.open();
  settle();
}

// cuMemFree waits for the context's streams, and holds its lock: whatever needed another call of
// the driver, or of ours, would never end.
TEST_P(LawTest, WhatIsEnqueuedEndsByItself) {
  open_over_tested();
  auto memory = std::make_unique<DeviceBuffer>(driver(), 1 << 20);
  Gate gate(driver());
  exchange_behind(gate);
  gate.open();
  memory.reset();
  EXPECT_EQ(driver().cuStreamQuery(compute(0)), CUDA_SUCCESS);
  settle();
  if (copier_ != nullptr) {
    EXPECT_EQ(copier_->carried().native_bytes, 0u);
  }
}

constexpr const char* kNames[] = {"OneLink", "OneLinkByKernel", "EveryLink",
                                  "EveryLinkByCopyEngines"};
INSTANTIATE_TEST_SUITE_P(Over, LawTest,
                         ::testing::Values(Over::kOneLink, Over::kOneLinkByKernel, Over::kEveryLink,
                                           Over::kEveryLinkByCopyEngines),
                         [](const auto& over) { return kNames[static_cast<size_t>(over.param)]; });

}  // namespace
}  // namespace braid::kv::test
