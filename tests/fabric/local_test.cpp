// Writes into memory that processes of one server share: which copies they are, and what cannot be
// shared.
#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <functional>

#include "fabric/gpu/process_driver.h"
#include "fabric/staged_fixture.h"
#include "fabric/wires.h"

namespace braid::fabric {
namespace {

class NeighboursTest : public StagedTest {
 protected:
  using Memories = std::vector<std::unique_ptr<test::Memory>>;
  static constexpr size_t kBytes = 2 << 20;
  NeighboursTest() { wire_name_ = "local_gpu_to_plain"; }

  /// The numbers of two allocations of which one begins where the other ends.
  static std::pair<size_t, size_t> neighbours(const Memories& memories) {
    for (size_t i = 0; i < memories.size(); ++i)
      for (size_t j = 0; j < memories.size(); ++j)
        if (memories[i]->bytes().data() + kBytes == memories[j]->bytes().data()) return {i, j};
    throw std::runtime_error("no two allocations lie side by side");
  }
};

/// The driver refuses one copy of two allocations.
TEST_F(NeighboursTest, WritesOfTwoAllocationsSideBySideAreTwoCopies) {
  Memories memories[2];
  for (int side = 0; side < 2; ++side)
    for (int i = 0; i < 16; ++i) memories[side].push_back(wire_->memory(side, kBytes));
  const auto from = neighbours(memories[0]), into = neighbours(memories[1]);
  const auto write = [&](size_t source, size_t target, uint64_t context) {
    const auto& source_memory = memories[0][source];
    source_memory->put(test::some_bytes(kBytes, static_cast<uint32_t>(context)));
    const uint32_t region = writer_->add_region(source_memory->bytes(), Access::kLocal).value();
    const uint32_t granted =
        owner_->add_region(memories[1][target]->bytes(), Access::kRemoteWrite).value();
    post(region, source_memory->bytes(), owner_->remote_range(granted), 0, context);
  };
  write(from.first, into.first, 1);
  write(from.second, into.second, 2);
  ASSERT_TRUE(wait([&] { return ended_.size() == 2; }));
  EXPECT_TRUE(ended_[1] && ended_[2]);
  EXPECT_TRUE(memories[1][into.first]->get() == memories[0][from.first]->get());
  EXPECT_TRUE(memories[1][into.second]->get() == memories[0][from.second]->get());
}

/// The driver of this process, which counts copies of a megabyte and more.
class LargeCopies {
 public:
  LargeCopies() : driver_(const_cast<cuda::Driver&>(*gpu::process_driver())) {
    real_ = driver_.cuMemcpyAsync;
    count_ = 0;
    driver_.cuMemcpyAsync = &copy;
  }
  ~LargeCopies() { driver_.cuMemcpyAsync = real_; }
  LargeCopies(const LargeCopies&) = delete;
  LargeCopies& operator=(const LargeCopies&) = delete;
  static int count() { return count_; }

 private:
  static CUresult copy(CUdeviceptr to, CUdeviceptr from, size_t size_bytes, CUstream stream) {
    if (size_bytes >= 1 << 20) ++count_;
    return real_(to, from, size_bytes, stream);
  }

  static inline decltype(cuda::Driver::cuMemcpyAsync) real_ = nullptr;
  static inline std::atomic<int> count_{0};
  cuda::Driver& driver_;
};

class WholeTest : public StagedTest {
 protected:
  static constexpr uint64_t kBytes = 16 << 20;
  WholeTest() { wire_name_ = "local_gpu_to_plain"; }
};

/// Each copy between GPUs costs time of its own, and pieces of several writes lie between each
/// other, so that none could be merged.
TEST_F(WholeTest, WritesAtOnceAreOneCopyEach) {
  const auto owner = open_engine(1, 101), writer = open_engine(0, 102);
  const auto wait_for = [&](const std::function<bool()>& until) {
    return wait([&] {
      for (Engine* engine : {owner.get(), writer.get()}) engine->step(wire_->now_ns());
      return until();
    });
  };
  const uint64_t limit_ns = wire_->now_ns() + 60'000'000'000;
  const uint64_t there = writer->connect(owner->address(), limit_ns).value();
  ASSERT_TRUE(wait_for([&] { return writer->peer_state(there).value() == PeerState::kConnected; }));
  std::optional<uint64_t> peer;
  ASSERT_TRUE(wait_for([&] { return (peer = owner->accept()).has_value(); }));
  const auto source = wire_->memory(0, 2 * kBytes), memory = wire_->memory(1, 2 * kBytes);
  source->put(test::some_bytes(2 * kBytes, 1));
  const auto granted =
      owner->grant(owner->add_region(memory->bytes()).value(), *peer, 0, 2 * kBytes).value();
  const uint64_t target = writer->open_target(granted.descriptor).value();
  const uint64_t from = writer->add_region(source->bytes()).value();
  const auto write = [&](uint64_t offset, uint64_t size_bytes) {
    return writer->write(from, target, {offset, offset, size_bytes}, {}, limit_ns).value();
  };
  const auto is_done = [&](uint64_t ticket) {
    return writer->state(ticket).value() == TicketState::kDone;
  };
  const uint64_t first = write(0, 1);  // from now on the memory is mapped
  ASSERT_TRUE(wait_for([&] { return is_done(first); }));
  const LargeCopies copies;
  const uint64_t tickets[] = {write(0, kBytes), write(kBytes, kBytes)};
  ASSERT_TRUE(wait_for([&] { return is_done(tickets[0]) && is_done(tickets[1]); }));
  EXPECT_TRUE(memory->get() == source->get());
  EXPECT_LE(LargeCopies::count(), 2);
  EXPECT_GE(LargeCopies::count(), 1);
}

/// The driver of this process, which makes whoever asks for a file descriptor of memory wait.
class HeldExports {
 public:
  HeldExports() : driver_(const_cast<cuda::Driver&>(*gpu::process_driver())) {
    real_ = driver_.cuMemExportToShareableHandle;
    is_held_ = true;
    driver_.cuMemExportToShareableHandle = &wait;
  }
  ~HeldExports() {
    release();
    driver_.cuMemExportToShareableHandle = real_;
  }
  HeldExports(const HeldExports&) = delete;
  HeldExports& operator=(const HeldExports&) = delete;
  static void release() { is_held_ = false; }
  static int waiting() { return waiting_; }

 private:
  /// Not for ever: whoever should not have asked is not to hang.
  static CUresult wait(void* file, CUmemGenericAllocationHandle handle,
                       CUmemAllocationHandleType kind, unsigned long long flags) {
    ++waiting_;
    for (int ms = 0; ms < 20'000 && is_held_; ++ms) usleep(1000);
    is_held_ = false;
    --waiting_;
    return real_(file, handle, kind, flags);
  }

  static inline decltype(cuda::Driver::cuMemExportToShareableHandle) real_ = nullptr;
  static inline std::atomic<bool> is_held_{false};
  static inline std::atomic<int> waiting_{0};
  cuda::Driver& driver_;
};

class HeldExportTest : public StagedTest {
 protected:
  HeldExportTest() { wire_name_ = "local_gpu_to_shared"; }
};

/// As while another thread holds the driver's lock: an engine goes on, and so do other writes.
TEST_F(HeldExportTest, ADriverThatIsSlowToShareMemoryStopsNothingElse) {
  const auto bytes = test::some_bytes(4096, 1);
  const auto source = wire_->memory(0, bytes.size()), target = wire_->memory(1, bytes.size());
  source->put(bytes);
  std::vector<std::byte> host_source = test::some_bytes(1000, 2), host_target(1000);
  const uint32_t from = writer_->add_region(source->bytes(), Access::kLocal).value();
  const uint32_t host_from = writer_->add_region(host_source, Access::kLocal).value();
  const uint32_t host_into = owner_->add_region(host_target, Access::kRemoteWrite).value();
  HeldExports held;
  const uint32_t into = owner_->add_region(target->bytes(), Access::kRemoteWrite).value();
  post(from, source->bytes(), owner_->remote_range(into), 0, 1);
  ASSERT_TRUE(wait([&] { return held.waiting() == 1; })) << "nobody asks, or the domain itself";
  post(host_from, host_source, owner_->remote_range(host_into), 0, 2);
  ASSERT_TRUE(wait([&] { return ended_.count(2) == 1 && immediates_[2] == 1; }));
  EXPECT_EQ(host_target, host_source);
  EXPECT_EQ(held.waiting(), 1);
  EXPECT_EQ(ended_.count(1), 0u);
  held.release();
  ASSERT_TRUE(wait([&] { return ended_.count(1) == 1 && immediates_[1] == 1; }));
  EXPECT_TRUE(ended_[1]);
  EXPECT_EQ(target->get(), bytes);
}

TEST(LocalTest, MemoryThatWasNotMadeToBeSharedIsRefusedWithTheRemedy) {
  const auto wire = kind_named("local_gpu_to_shared").make();
  const auto owner = wire->open(1);
  const auto memory = test::unshared_memory(4096);
  const auto region = owner->add_region(memory->bytes(), Access::kRemoteWrite);
  ASSERT_FALSE(region.ok());
  EXPECT_NE(region.status().message().find("CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR"),
            std::string::npos);
  EXPECT_TRUE(owner->add_region(memory->bytes(), Access::kLocal).ok()) << "it may be a source";
}

}  // namespace
}  // namespace braid::fabric
