// Memory of contexts that the program has made, and destroys while the engine goes on.
#include <dirent.h>

#include <filesystem>

#include "support/eventually.h"
#include "support/gate.h"
#include "support/lock_holder.h"
#include "transfer/gpu_memory.h"

namespace braid::transfer::test {
namespace {

namespace fs = std::filesystem;
using Cause = Transfer::Cause;
using Operation = Transfer::Operation;
constexpr size_t kBytes = 2 << 20;

int threads() {
  int count = 0;
  DIR* folder = opendir("/proc/self/task");
  while (readdir(folder) != nullptr) ++count;
  closedir(folder);
  return count;
}

class TransferGpuContexts : public GpuTest {
 protected:
  struct Memory {
    CUcontext context = nullptr;
    CUdeviceptr address = 0;
    Transfer::Buffer buffer{};
  };

  void SetUp() override {
    GpuTest::SetUp();
    if (IsSkipped()) return;
    fs::create_directories(root_);
    transfer_.emplace(Transfer::open(gpu_options()).value());
    ASSERT_TRUE(transfer_->register_memory(host_.data(), kBytes, {true, true}).ok());
    ASSERT_TRUE(transfer_->export_folder("files", root_.string(), {true, true}).ok());
    own_ = transfer_->open_segment(transfer_->name().value(), kLimit).value();
    file_ = transfer_->open_file(own_, "files/kv", {true, true}, kLimit).value();
  }
  ~TransferGpuContexts() override { fs::remove_all(root_); }

  Memory make(int number) {
    Memory memory;
    MUST(driver(), create_context(&memory.context, 0, gpu(number)));
    MUST(driver(), cuMemAlloc(&memory.address, kBytes));
    memory.buffer = transfer_->register_memory(at(memory.address), kBytes, {true, true}).value();
    return memory;
  }
  void unmake(const Memory& memory) {
    const auto unregistered = transfer_->unregister_memory(memory.buffer, kLimit);
    ASSERT_TRUE(unregistered.ok()) << unregistered.message();
    MUST(driver(), cuCtxDestroy(memory.context));
  }
  Cause move(Operation operation, Transfer::Segment with, void* local, uint64_t there) {
    return run(*transfer_, {{with, operation, local, there, kBytes}}).front();
  }
  /// From host memory to the GPU, to a file, which takes pinned memory of the engine's, and back.
  void use(const Memory& memory, uint64_t seed) {
    fill(host_, seed);
    ASSERT_EQ(move(Operation::kWrite, own_, host_.data(), memory.address), Cause::kDone);
    ASSERT_EQ(move(Operation::kWrite, file_, at(memory.address), 0), Cause::kDone);
    MUST(driver(), cuCtxSetCurrent(memory.context));
    MUST(driver(), cuMemsetD8(memory.address, 0, kBytes));
    MUST(driver(), cuCtxSynchronize());
    ASSERT_EQ(move(Operation::kRead, file_, at(memory.address), 0), Cause::kDone);
    MUST(driver(), cuCtxSetCurrent(memory.context));
    ASSERT_EQ(wrong_on_gpu(memory.address, kBytes, seed), std::nullopt);
  }

  const fs::path root_ = fs::path(testing::TempDir()) / ("braid-ctx-" + std::to_string(getpid()));
  std::vector<std::byte> host_ = std::vector<std::byte>(kBytes);
  std::optional<Transfer> transfer_;  // ends before its memory
  Transfer::Segment own_{}, file_{};
};

TEST_F(TransferGpuContexts, NothingIsLeftThereOnceItsLastBufferIsUnregistered) {
  const Memory lasting = make(1);
  int before = 0;  // once the driver and the engine have started their threads
  for (uint64_t turn = 1; turn <= 5; ++turn) {
    const Memory first = make(0);
    ASSERT_NO_FATAL_FAILURE(use(first, turn));
    MUST(driver(), cuCtxSetCurrent(first.context));
    Memory second = first;
    MUST(driver(), cuMemAlloc(&second.address, kBytes));
    second.buffer = transfer_->register_memory(at(second.address), kBytes, {true, true}).value();
    ASSERT_TRUE(transfer_->unregister_memory(first.buffer, kLimit).ok());
    ASSERT_NO_FATAL_FAILURE(use(second, 10 + turn)) << "other memory of the context is in use";
    ASSERT_NO_FATAL_FAILURE(unmake(second));
    ASSERT_NO_FATAL_FAILURE(use(lasting, 20 + turn)) << "the engine goes on, turn " << turn;
    if (turn == 1) before = threads();
    EXPECT_TRUE(braid::test::eventually([&] { return threads() <= before; }))
        << "something is left in a context that is gone, turn " << turn;
  }
  ASSERT_NO_FATAL_FAILURE(unmake(lasting));
}

/// What is left there is given back to the driver, which waits for the context's streams.
TEST_F(TransferGpuContexts, UnregisteringWaitsUntilNothingIsLeftThere) {
  if (!is_emulated()) GTEST_SKIP() << "waived: what waits for streams is the emulated driver's";
  use_gpu(0);
  braid::test::Gate gate(driver());
  const Memory memory = make(0);
  ASSERT_NO_FATAL_FAILURE(use(memory, 1));
  CUstream stream = nullptr;
  MUST(driver(), cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  gate.hold(stream);
  EXPECT_FALSE(transfer_->unregister_memory(memory.buffer, 100ms).ok());
  gate.open();
  ASSERT_NO_FATAL_FAILURE(unmake(memory));
}

/// It has pinned the memory of the engine's that both go through.
TEST_F(TransferGpuContexts, OneThatIsHeldUpLeavingHoldsUpNoOther) {
  if (!is_emulated()) GTEST_SKIP() << "waived: what holds the lock is the emulated driver's";
  const Memory first = make(0), second = make(1);
  ASSERT_NO_FATAL_FAILURE(use(first, 1));
  MUST(driver(), cuCtxSetCurrent(first.context));
  CUdeviceptr other = 0;
  CUstream stream = nullptr;
  MUST(driver(), cuMemAlloc(&other, kBytes));
  MUST(driver(), cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  use_gpu(0);
  braid::test::Gate gate(driver());
  MUST(driver(), cuCtxSetCurrent(first.context));
  gate.hold(stream);
  {
    const braid::test::LockHolder holder(driver(), first.context, other);
    EXPECT_FALSE(transfer_->unregister_memory(first.buffer, 100ms).ok());
    for (uint64_t seed = 2; seed < 5; ++seed) ASSERT_NO_FATAL_FAILURE(use(second, seed));
    EXPECT_FALSE(holder.has_ended());
    gate.open();
  }
  ASSERT_NO_FATAL_FAILURE(unmake(first));
  ASSERT_NO_FATAL_FAILURE(use(second, 5));
  ASSERT_NO_FATAL_FAILURE(unmake(second));
}

}  // namespace
}  // namespace braid::transfer::test
