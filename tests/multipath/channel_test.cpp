// The channels of a relay hold each other up in nothing: on GPUs, which have few hardware queues
// for each context, this is what their number rests on.
#include <atomic>
#include <future>

#include "cuda/bounded_wait.h"
#include "cuda/scoped_context.h"
#include "multipath/relay.h"
#include "support/server.h"

namespace braid::multipath {
namespace {

using test::HostBuffer;

constexpr uint64_t kBytes = 64 << 10;

class ChannelTest : public test::ServerTest {
 protected:
  void SetUp() override {
    ServerTest::SetUp();
    if (IsSkipped()) return;
    relay_ = std::move(Relay::open(driver(), every_size(), 0, 0, nullptr)).value();
    host_ = std::make_unique<HostBuffer>(driver(), 2 * kMostChannels * kBytes);
    std::fill_n(host_->data(), host_->size(), uint8_t{0});
    const cuda::ScopedContext scope(driver(), relay_->context());
    MUST(driver(), cuMemAlloc(&device_, kMostChannels * kBytes));
    MUST(driver(), cuMemsetD8(device_, 0, kMostChannels * kBytes));
    MUST(driver(), cuCtxSynchronize());
    for (int i = 0; i < kMostChannels; ++i) take_one(i);
  }

  // Whatever failed, no channel stays held.
  void TearDown() override {
    if (relay_ == nullptr) return;
    for (size_t i = 0; i < channels_.size(); ++i) open(i);
    for (const Channel* channel : channels_) EXPECT_TRUE(ends(channel->stream));
    const cuda::ScopedContext scope(driver(), relay_->context());
    MUST(driver(), cuMemFree(device_));
    release();
  }

  // As transfers of so many streams do: copies take those that have buffers.
  void take_one(int number) {
    const StreamKey user{nullptr, reinterpret_cast<CUstream>(static_cast<uintptr_t>(number) + 1)};
    const Mover mover = number < kMostCopyChannels ? Mover::kCopyEngine : Mover::kKernel;
    acquire({.mover = mover, .ops = 4}, user);
  }

  bool acquire(const ChannelRequest& request, const StreamKey& user) {
    const RelayPath path = relay_->acquire(user, request);
    if (path.channel_count == 0) return false;
    paths_.push_back(path);
    channels_.insert(channels_.end(), path.taken().begin(), path.taken().end());
    return true;
  }
  void release() {
    for (const RelayPath& path : paths_) relay_->release(path);
    paths_.clear();
    channels_.clear();
  }

  uint32_t* gate(size_t i) { return reinterpret_cast<uint32_t*>(host_->data() + i * kBytes); }
  void next_turn() { ++turn_; }
  void open(size_t i) { std::atomic_ref(*gate(i)).store(turn_); }
  void hold(size_t i) {
    MUST(driver(), cuStreamWaitValue32(channels_[i]->stream, reinterpret_cast<CUdeviceptr>(gate(i)),
                                       turn_, CU_STREAM_WAIT_VALUE_GEQ));
  }
  bool ends(CUstream stream) {
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(60);
    return cuda::wait_until_idle(driver(), stream, deadline) == CUDA_SUCCESS;
  }

  void copy(size_t i) {
    MUST(driver(), cuMemcpyHtoDAsync(channels_[i]->buffer, bytes(i), kBytes, channels_[i]->stream));
    MUST(driver(), cuMemcpyDtoHAsync(bytes(i), channels_[i]->buffer, kBytes, channels_[i]->stream));
  }
  // One slice, by one block: the first half of the channel's memory is the slice's, then its words.
  void launch(size_t i) {
    cuda::PullArgs args{};
    args.source = reinterpret_cast<uint64_t>(bytes(i));
    args.destination = device_ + i * kBytes;
    args.size_bytes = args.slice_bytes = kBytes / 2;
    args.counters = device_ + i * kBytes + kBytes / 2;
    args.report = reinterpret_cast<uint64_t>(bytes(i) + kBytes / 2);
    args.occupancy = relay_->link().occupancy(Direction::kHostToDevice);
    args.slice_count = args.path_count = args.total_blocks = args.generation = 1;
    args.rank = cuda::kBulkDirectRank;
    args.relay_slot = cuda::kNoRelaySlot;
    void* parameters[] = {&args};
    const KernelConfig& kernel = relay_->kernels().vector;
    MUST(driver(), cuLaunchKernel(kernel.function, 1, 1, 1, kernel.threads, 1, 1, 0,
                                  channels_[i]->stream, parameters, nullptr));
  }

  // Each channel in turn is free while all others are held, with work behind that.
  template <typename Work>
  void expect_independent(const Work& work) {
    const cuda::ScopedContext scope(driver(), relay_->context());
    for (size_t free = 0; free < channels_.size(); ++free) {
      next_turn();
      for (size_t i = 0; i < channels_.size(); ++i) {
        if (i == free) continue;
        hold(i);
        work(i);
      }
      work(free);
      EXPECT_TRUE(ends(channels_[free]->stream)) << "channel " << free << " waits for another";
      for (size_t i = 0; i < channels_.size(); ++i) open(i);
      for (const Channel* channel : channels_) ASSERT_TRUE(ends(channel->stream));
    }
  }

  std::unique_ptr<Relay> relay_;
  std::vector<RelayPath> paths_;
  std::vector<Channel*> channels_;  // of those paths

 private:
  uint8_t* bytes(size_t i) { return host_->data() + (kMostChannels + i) * kBytes; }

  std::unique_ptr<HostBuffer> host_;  // a gate for each channel, then bytes for each
  CUdeviceptr device_ = 0;
  uint32_t turn_ = 0;
};

TEST_F(ChannelTest, NoneWaitsForAnotherOnesKernels) {
  ASSERT_EQ(channels_.size(), static_cast<size_t>(kMostChannels));
  expect_independent([&](size_t i) { launch(i); });
}

TEST_F(ChannelTest, NoneWaitsForAnotherOnesCopiesOrKernels) {
  ASSERT_EQ(channels_.size(), static_cast<size_t>(kMostChannels));
  expect_independent([&](size_t i) { i < kMostCopyChannels ? copy(i) : launch(i); });
}

// While a stream is held, a call that enqueues must return. One that blocked would end only when
// the stream goes on. (The emulated driver takes any number: the test is for GPUs.)
TEST_F(ChannelTest, EachTakesAsManyOperationsAsItMay) {
  next_turn();
  std::atomic<uint32_t> enqueued{0};
  auto filling = std::async(std::launch::async, [&] {
    const cuda::ScopedContext scope(driver(), relay_->context());
    for (size_t i = 0; i < static_cast<size_t>(kMostCopyChannels); ++i) {
      hold(i);
      for (uint32_t ops = 1; ops < kMostPendingOps; ++ops, ++enqueued)
        MUST(driver(), cuMemcpyHtoDAsync(channels_[i]->buffer, gate(i), sizeof(uint32_t),
                                         channels_[i]->stream));
    }
  });
  EXPECT_EQ(filling.wait_for(std::chrono::seconds(60)), std::future_status::ready)
      << enqueued << " operations were enqueued";
  for (size_t i = 0; i < channels_.size(); ++i) open(i);
}

// The driver sets more local memory aside when a kernel first needs it, and waits for all streams
// of the context meanwhile. The emulator's kernels need some for that here.
class LocalMemoryTest : public ChannelTest {
 protected:
  LocalMemoryTest() { setenv("BRAID_FAULTS", R"({"kernels_take_local_bytes": 64})", 1); }
};

TEST_F(LocalMemoryTest, AFirstLaunchWaitsForNoOtherChannel) {
  next_turn();
  const cuda::ScopedContext scope(driver(), relay_->context());
  hold(1);
  auto launched = std::async(std::launch::async, [&] {
    const cuda::ScopedContext there(driver(), relay_->context());
    launch(0);
  });
  EXPECT_EQ(launched.wait_for(std::chrono::seconds(60)), std::future_status::ready);
  open(1);
}

// A copy would have nowhere to go in the others, and share a queue with another.
TEST_F(ChannelTest, CopiesTakeOnlyChannelsThatHaveABuffer) {
  release();
  while (acquire({.mover = Mover::kCopyEngine, .channel_count = kChannelsOfPath, .ops = 1}, {})) {
  }
  EXPECT_EQ(channels_.size(), static_cast<size_t>(kMostCopyChannels));
  for (const Channel* channel : channels_) EXPECT_NE(channel->buffer, 0u);
}

}  // namespace
}  // namespace braid::multipath
