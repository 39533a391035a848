// Memory of contexts that the program has made, and destroys while engines are open.
#include <cuda.h>
#include <dirent.h>

#include <optional>

#include "fabric/library_pair.h"
#include "support/server.h"

namespace braid {
namespace {

using std::chrono::seconds;

int threads() {
  int count = 0;
  DIR* folder = opendir("/proc/self/task");
  while (readdir(folder) != nullptr) ++count;
  closedir(folder);
  return count;
}

/// Two engines of this process. Each end of a write lies in a context of its own.
class GpuContextTest : public test::ServerTest, public testing::WithParamInterface<const char*> {
 protected:
  static constexpr size_t kBytes = 1 << 20;
  static constexpr seconds kLimit{60};

  struct Memory {
    CUcontext context = nullptr;
    CUdeviceptr address = 0;
    Fabric::Region region{};
  };

  void SetUp() override {
    ServerTest::SetUp();
    if (IsSkipped()) return;
    Fabric::Options options{GetParam(), {"127.0.0.1"}};
    options.gpu_memory = std::string(GetParam()) != "local";
    auto opened = Fabric::open(options);
    ASSERT_TRUE(opened.ok()) << opened.status().message();
    owner_.emplace(std::move(opened).value());
    writer_.emplace(Fabric::open(options).value());
    ASSERT_TRUE(writer_->connect(owner_->address().value(), kLimit).ok());
    writers_peer_ = owner_->accept(kLimit).value().value();
  }

  Memory make(Fabric& fabric, int gpu, int fill) {
    Memory memory;
    MUST(driver(), create_context(&memory.context, 0, gpu));
    MUST(driver(), cuMemAlloc(&memory.address, kBytes));
    MUST(driver(), cuMemsetD8(memory.address, static_cast<uint8_t>(fill), kBytes));
    MUST(driver(), cuCtxSynchronize());
    memory.region = fabric.add_region(reinterpret_cast<std::byte*>(memory.address), kBytes).value();
    return memory;
  }
  void unmake(Fabric& fabric, const Memory& memory) {
    ASSERT_TRUE(fabric.remove_region(memory.region).ok());
    MUST(driver(), cuCtxDestroy(memory.context));
  }
  void write(const Memory& source, const Memory& target) {
    const auto granted = owner_->grant(target.region, writers_peer_, 0, kBytes).value();
    const auto opened = writer_->open_target(granted.descriptor).value();
    const auto immediate = owner_->acquire_immediate().value();
    const auto ticket =
        writer_->write(source.region, opened, {0, 0, kBytes}, immediate, kLimit).value();
    ASSERT_EQ(writer_->wait(ticket, kLimit).value(), Fabric::TicketState::kDone);
    writer_->forget(ticket);
    const uint64_t count = Fabric::immediates_of_write(kBytes);
    ASSERT_EQ(owner_->wait_count(immediate, count, kLimit).value(), count);
    ASSERT_EQ(owner_->revoke(granted.grant, kLimit).value(), Fabric::Fence::kFenced);
    ASSERT_TRUE(owner_->release(immediate).ok());
  }

  std::optional<Fabric> owner_, writer_;
  Fabric::Peer writers_peer_{};
};

TEST_P(GpuContextTest, NothingIsLeftThereOnceItsLastRegionIsRemoved) {
  int before = 0;  // once the driver and the provider have started theirs
  for (int turn = 1; turn <= 5; ++turn) {
    const Memory source = make(*writer_, 0, turn), target = make(*owner_, 1, 0);
    ASSERT_NO_FATAL_FAILURE(write(source, target)) << turn;
    std::vector<std::byte> bytes(kBytes);
    MUST(driver(), cuMemcpyDtoH(bytes.data(), target.address, kBytes));
    EXPECT_EQ(bytes, std::vector<std::byte>(kBytes, static_cast<std::byte>(turn)));
    ASSERT_NO_FATAL_FAILURE(unmake(*owner_, target));
    ASSERT_NO_FATAL_FAILURE(unmake(*writer_, source));
    if (turn == 1) before = threads();
    ASSERT_TRUE(test::eventually([&] { return threads() <= before; })) << "a lane is left";
  }
}

class GpuRegionTest : public test::ServerTest {};

/// Memory of a GPU, of an engine that was opened without any.
TEST_F(GpuRegionTest, MemoryThatIsRefusedHasACodeOfItsOwn) {
  auto opened = Fabric::open({"tcp;ofi_rxm", {"127.0.0.1"}});
  ASSERT_TRUE(opened.ok()) << opened.status().message();
  use_gpu(0);
  const test::DeviceBuffer memory(driver(), 4096);
  uint64_t region = 0;
  EXPECT_EQ(braid_fabric_add_region(opened.value().get(), reinterpret_cast<void*>(memory.at()),
                                    4096, &region),
            BRAID_ERROR_REGION);
  EXPECT_NE(std::string(braid_fabric_last_error()).find("gpu_memory"), std::string::npos);
}

INSTANTIATE_TEST_SUITE_P(Ways, GpuContextTest, testing::Values("tcp;ofi_rxm", "shm", "local"),
                         [](const auto& way) { return std::string(way.param).substr(0, 3); });

}  // namespace
}  // namespace braid
