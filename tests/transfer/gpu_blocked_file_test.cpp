// GPU memory and files of the process, while a file system does not answer an `open`.
#include "transfer/leased_file.h"
#include "transfer/own_gpu.h"

namespace braid::transfer::test {
namespace {

/// An engine that keeps few files open.
class TransferOwnGpuFewFiles : public TransferOwnGpu {
 protected:
  void SetUp() override {
    const FewDescriptors few;
    TransferOwnGpu::SetUp();
  }
};

/// It waits for a file that is opened again, and that does not answer.
TEST_F(TransferOwnGpuFewFiles, ARequestForAFileThatDoesNotOpenMeetsItsDeadline) {
  const auto file = open_file("kv");
  put_pattern(on(0), kBytes, 6);
  auto write = request(Operation::kWrite, at(on(0)), 0, kBytes);
  write.segment = file;
  ASSERT_EQ(run({write}), std::vector{Cause::kDone});
  for (int i = 0; i < 40; ++i) open_file("other" + std::to_string(i));
  Lease lease(root_ / "kv");
  auto read = request(Operation::kRead, at(on(1)), 0, kBytes);
  read.segment = file;
  read.limit = std::chrono::milliseconds(50);
  EXPECT_TRUE(braid::test::eventually([&] {  // its deadline may be over before it comes to the file
    EXPECT_EQ(run({read}), std::vector{Cause::kDeadline});
    return lease.holds_somebody();
  }));
  lease.end();
  read.limit = {};
  EXPECT_EQ(run({read}), std::vector{Cause::kDone});
  EXPECT_EQ(wrong_on_gpu(on(1), kBytes, 6), std::nullopt);
}

}  // namespace
}  // namespace braid::transfer::test
