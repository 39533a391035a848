// The law (docs/architecture.md): one test for each of its sentences. The emulated driver holds a
// context's lock as the measured one does. `GateThatBreaksTheLaw` is what these tests must catch.
#include <atomic>
#include <cstring>
#include <functional>
#include <future>
#include <thread>
#include <utility>

#include "cuda/bounded_wait.h"
#include "multipath/transfer_state.h"
#include "support/eventually.h"
#include "support/gate.h"
#include "support/lock_holder.h"
#include "support/server.h"

namespace braid::multipath {
namespace {

using test::DeviceBuffer;
using test::Gate;
using test::HostBuffer;
using test::LockHolder;

constexpr uint64_t kSize = 32 << 20;

class LawTest : public test::ServerTest {
 protected:
  void SetUp() override {
    ServerTest::SetUp();
    Options options = every_size();
    options.relays.kind = RelayChoice::Kind::kList;
    options.relays.gpus = {1, 2};
    engine_ = open_engine(options);
    host_ = std::make_unique<HostBuffer>(driver(), kSize);
    device_ = std::make_unique<DeviceBuffer>(driver(), kSize);
  }

  // In the stream's order, as a contiguous copy or as a batch, which kernels carry.
  Outcome send(CUstream stream, const DeviceBuffer& device, bool is_batch) {
    const Segment halves[] = {{host_->data() + kSize / 2, device.at(kSize / 2), kSize / 2},
                              {host_->data(), device.at(), kSize / 2}};
    const Segment whole{host_->data(), device.at(), kSize};
    const std::span<const Segment> all =
        is_batch ? std::span<const Segment>(halves) : std::span(&whole, 1);
    return engine_->submit(Batch{Direction::kHostToDevice, all, stream});
  }
  // The same, with help of GPU 1.
  void expect_carried(CUstream stream, const DeviceBuffer& device, bool is_batch) {
    const Outcome outcome = send(stream, device, is_batch);
    EXPECT_STREQ(verdict_name(outcome.verdict), "accelerated");
    EXPECT_EQ(outcome.mover, is_batch ? Mover::kKernel : Mover::kCopyEngine);
    EXPECT_NE(outcome.via >> 1 & 1, 0u) << "no relay takes part";
  }
  bool ends(CUstream stream) {
    const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(60);
    return cuda::wait_until_idle(driver(), stream, limit) == CUDA_SUCCESS;
  }
  bool has_arrived(const DeviceBuffer& device) {
    std::vector<uint8_t> seen(kSize);
    MUST(driver(), cuMemcpyDtoH(seen.data(), device.at(), kSize));
    return std::memcmp(seen.data(), host_->data(), kSize) == 0;
  }

  std::unique_ptr<Engine> engine_;
  std::unique_ptr<HostBuffer> host_;
  std::unique_ptr<DeviceBuffer> device_;
};

// 1. A call waits for no lock of another GPU's context: here of one that relays.
TEST_F(LawTest, ACallWaitsForNothingThatTheNativeCallWouldNotWaitFor) {
  for (const bool is_batch : {false, true}) {
    host_->fill_random(is_batch ? 6 : 5);
    use_gpu(1);
    const CUstream held = new_stream();
    CUdeviceptr memory = 0;
    MUST(driver(), cuMemAlloc(&memory, 4096));
    Gate gate(driver());
    gate.hold(held);
    const LockHolder holder(driver(), context(1), memory);
    use_gpu(0);
    const CUstream stream = new_stream();
    expect_carried(stream, *device_, is_batch);
    EXPECT_TRUE(ends(stream)) << "it waited for a thread that frees memory of GPU 1";
    EXPECT_FALSE(holder.has_ended()) << "nobody held the lock";
    EXPECT_TRUE(has_arrived(*device_));
    gate.open();
  }
}

// Nor for another context that ends: here one whose transfer is held.
TEST_F(LawTest, AContextThatEndsHoldsUpNoOther) {
  use_gpu(3);
  const DeviceBuffer far(driver(), kSize);
  const CUstream elsewhere = new_stream();
  use_gpu(0);
  host_->fill_random(8);
  const CUstream held = new_stream();
  Gate gate(driver());
  gate.hold(held);
  expect_carried(held, *device_, false);
  std::thread ending([&] {
    driver().cuCtxSetCurrent(context(0));
    engine_->forget_context(context(0));
  });
  std::this_thread::sleep_for(std::chrono::milliseconds(100));  // until it waits
  use_gpu(3);
  expect_carried(elsewhere, far, false);
  EXPECT_TRUE(ends(elsewhere));
  EXPECT_TRUE(has_arrived(far));
  gate.open();
  ending.join();
  use_gpu(0);
  EXPECT_TRUE(ends(held));
  EXPECT_TRUE(has_arrived(*device_));
}

// Nor does a context that ends wait for a transfer of another, also if they have a relay in common.
TEST_F(LawTest, AContextThatEndsWaitsForNoTransferOfAnother) {
  use_gpu(3);
  const DeviceBuffer far(driver(), kSize);
  host_->fill_random(10);
  expect_carried(new_stream(), far, false);
  use_gpu(0);
  const CUstream held = new_stream();
  Gate gate(driver());
  gate.hold(held);
  expect_carried(held, *device_, false);
  std::promise<void> has_ended;
  std::thread ending([&] {
    driver().cuCtxSetCurrent(context(3));
    engine_->forget_context(context(3));
    has_ended.set_value();
  });
  EXPECT_EQ(has_ended.get_future().wait_for(std::chrono::seconds(60)), std::future_status::ready)
      << "it waits for a transfer to GPU 0 that is held";
  gate.open();
  ending.join();
  EXPECT_TRUE(ends(held));
  EXPECT_TRUE(has_arrived(*device_));
  // What it left serves the next one.
  use_gpu(3);
  ASSERT_TRUE(engine_->add_context(context(3)).ok());
  host_->fill_random(11);
  const CUstream again = new_stream();
  expect_carried(again, far, true);
  EXPECT_TRUE(ends(again));
  EXPECT_TRUE(has_arrived(far));
}

// Nor for code that is loaded into another, for which the driver waits for that one's streams.
TEST_F(LawTest, AContextThatIsLoadedLateHoldsUpNoOther) {
  use_gpu(3);
  const DeviceBuffer far(driver(), kSize);
  const CUstream elsewhere = new_stream();
  host_->fill_random(9);
  Gate gate(driver());  // in no context that ends
  CUcontext own = nullptr;
  CUdevice device = 0;
  MUST(driver(), cuDeviceGet(&device, 0));
  MUST(driver(), create_context(&own, 0, device));
  CUstream held = nullptr;  // ends with its context
  MUST(driver(), cuStreamCreate(&held, CU_STREAM_NON_BLOCKING));
  gate.hold(held);
  std::atomic<bool> is_known{false};
  std::thread adding([&] {
    driver().cuCtxSetCurrent(own);
    is_known = engine_->add_context(own).ok();
  });
  std::this_thread::sleep_for(std::chrono::milliseconds(100));
  EXPECT_FALSE(is_known) << "the driver waits for no stream";
  use_gpu(3);
  expect_carried(elsewhere, far, false);
  EXPECT_TRUE(ends(elsewhere));
  EXPECT_TRUE(has_arrived(far));
  gate.open();
  adding.join();
  EXPECT_TRUE(is_known);
  engine_->forget_context(own);
  MUST(driver(), cuCtxDestroy(own));
}

// A transfer that begins while a relay is about to free its buffers: copy engines need those,
// kernels do not.
struct BeginsBeforeFreeing {
  static inline BeginsBeforeFreeing* self = nullptr;
  decltype(cuda::Driver::cuMemFree) free;
  std::function<void()> begin;

  static CUresult begin_and_free(CUdeviceptr memory) {
    if (auto begin = std::exchange(self->begin, nullptr)) std::thread(begin).join();
    return self->free(memory);
  }
};

TEST_F(LawTest, FreeingTheBuffersOfARelayWaitsForNoTransfer) {
  engine_.reset();
  cuda::Driver driver_of_engine = driver();
  BeginsBeforeFreeing hook{.free = driver().cuMemFree, .begin = nullptr};
  BeginsBeforeFreeing::self = &hook;
  driver_of_engine.cuMemFree = BeginsBeforeFreeing::begin_and_free;
  Options options = every_size();
  options.relays.kind = RelayChoice::Kind::kList;
  options.relays.gpus = {1, 2};
  auto opened = Engine::open(driver_of_engine, options);
  ASSERT_TRUE(opened.ok()) << opened.status().message();
  engine_ = std::move(opened).value();
  host_->fill_random(7);
  const CUstream held = new_stream();
  Gate gate(driver());
  gate.hold(held);
  hook.begin = [&] {
    driver().cuCtxSetCurrent(context(0));
    EXPECT_EQ(send(held, *device_, true), Verdict::kAccelerated);
  };
  std::atomic<uint64_t> given_bytes{0};
  std::thread short_of_memory([&] {
    driver().cuCtxSetCurrent(context(1));
    CUdevice device = 0;
    driver().cuDeviceGet(&device, 1);
    given_bytes = engine_->release_buffers(device);
  });
  EXPECT_TRUE(test::eventually([&] { return given_bytes != 0; }))
      << "it waits for a transfer of another GPU";
  gate.open();
  short_of_memory.join();
  EXPECT_TRUE(ends(held));
  EXPECT_TRUE(has_arrived(*device_));
  expect_carried(held, *device_, true);
  EXPECT_TRUE(ends(held));
  engine_.reset();  // before its driver
}

// 2. After the call nothing needs another driver call: here they all wait, in the target's context.
TEST_F(LawTest, WhatAStreamWaitsForNeedsNoLaterCall) {
  for (const bool is_batch : {false, true}) {
    host_->fill_random(is_batch ? 6 : 5);
    const CUstream stream = new_stream(), held = new_stream();
    CUdeviceptr memory = 0;
    MUST(driver(), cuMemAlloc(&memory, 4096));
    Gate gate(driver()), other(driver());
    gate.hold(stream);
    expect_carried(stream, *device_, is_batch);
    other.hold(held);
    const LockHolder holder(driver(), context(0), memory);
    gate.open();
    EXPECT_TRUE(ends(stream)) << "it waited for a call that another thread holds up";
    EXPECT_FALSE(holder.has_ended()) << "nobody held the lock";
    other.open();
    EXPECT_TRUE(ends(held));
    EXPECT_TRUE(has_arrived(*device_));
  }
}

// 3. A transfer that is held back holds back no other, of whichever GPU.
TEST_F(LawTest, AHeldTransferHoldsBackNoOther) {
  use_gpu(3);
  const DeviceBuffer far(driver(), kSize);
  const CUstream elsewhere = new_stream();
  use_gpu(0);
  const DeviceBuffer beside(driver(), kSize);
  for (const bool is_batch : {false, true}) {
    host_->fill_random(is_batch ? 6 : 5);
    const CUstream held = new_stream(), free = new_stream();
    Gate gate(driver());
    gate.hold(held);
    for (int copy = 0; copy < 8; ++copy) expect_carried(held, *device_, is_batch);
    expect_carried(free, beside, is_batch);
    EXPECT_TRUE(ends(free));
    EXPECT_TRUE(has_arrived(beside));
    use_gpu(3);
    expect_carried(elsewhere, far, is_batch);
    EXPECT_TRUE(ends(elsewhere));
    EXPECT_TRUE(has_arrived(far));
    use_gpu(0);
    EXPECT_EQ(driver().cuStreamQuery(held), CUDA_ERROR_NOT_READY);
    gate.open();
    EXPECT_TRUE(ends(held));
    EXPECT_TRUE(has_arrived(*device_));
  }
}

// The same of default streams, which have one handle in all contexts.
TEST_F(LawTest, AHeldDefaultStreamHoldsBackNoneOfAnotherGpu) {
  use_gpu(3);
  const DeviceBuffer far(driver(), kSize);
  for (const CUstream handle : {CU_STREAM_LEGACY, CU_STREAM_PER_THREAD})
    for (const bool is_batch : {false, true}) {
      host_->fill_random(is_batch ? 6 : 5);
      use_gpu(0);
      Gate gate(driver());
      gate.hold(handle);
      expect_carried(handle, *device_, is_batch);
      use_gpu(3);
      expect_carried(handle, far, is_batch);
      EXPECT_TRUE(ends(handle)) << "it stands behind GPU 0's";
      gate.open();
      use_gpu(0);
      EXPECT_TRUE(ends(handle));
      EXPECT_TRUE(has_arrived(*device_));
    }
}

// The same when the held stream has more than relays take: what has no room is native at once.
TEST_F(LawTest, AHeldStreamThatIsFullHoldsBackNoOther) {
  const DeviceBuffer beside(driver(), kSize);
  for (const bool is_batch : {false, true}) {
    host_->fill_random(is_batch ? 6 : 5);
    const CUstream held = new_stream(), free = new_stream();
    Gate gate(driver());
    gate.hold(held);
    Verdict last = Verdict::kAccelerated;
    for (int copy = 0; copy < 2 * kMostOfOneStream; ++copy) last = send(held, *device_, is_batch);
    EXPECT_STREQ(verdict_name(last), "saturated");
    const Verdict verdict = send(free, beside, is_batch);
    EXPECT_TRUE(verdict == Verdict::kAccelerated || verdict == Verdict::kSaturated)
        << verdict_name(verdict);
    EXPECT_TRUE(ends(free));
    EXPECT_EQ(driver().cuStreamQuery(held), CUDA_ERROR_NOT_READY);
    gate.open();
    EXPECT_TRUE(ends(held));
    EXPECT_TRUE(has_arrived(*device_));
  }
}

// 4. The thread that opens relays waits for no stream of the program's, and keeps nobody from
// enqueuing.
TEST_F(LawTest, OpeningWaitsForNoStreamOfTheProgram) {
  Options options = every_size();
  options.relays.kind = RelayChoice::Kind::kList;
  options.relays.gpus = {1};
  auto prepared = Engine::create(driver(), options);
  ASSERT_TRUE(prepared.ok()) << prepared.status().message();
  Engine& engine = *prepared.value();
  ASSERT_TRUE(engine.add_context(nullptr).ok());
  const CUstream held = new_stream(), stream = new_stream();
  CUdeviceptr memory = 0;
  MUST(driver(), cuMemAlloc(&memory, 4096));
  Gate gate(driver());
  gate.hold(held);
  const LockHolder holder(driver(), context(0), memory);
  std::atomic<bool> is_open{false};
  std::thread opener([&] {
    engine.request_relays(kEveryGpu);
    for (bool is_more = true; is_more;) {
      const auto opened = engine.open_next_relay();
      is_more = opened.ok() && opened.value();
    }
    engine.open_targets();
    is_open = true;
  });
  EXPECT_TRUE(test::eventually([&] { return is_open.load(); }))
      << "it waits for a lock or a stream of the program's";
  gate.open();
  opener.join();
  EXPECT_TRUE(ends(held));
  EXPECT_EQ(engine.submit({Direction::kHostToDevice, host_->data(), device_->at(), kSize, stream}),
            Verdict::kAccelerated);
  EXPECT_TRUE(ends(stream));
}

// What the second sentence forbids, and its test sees: a gate in the program's stream that opens
// when a later call of another thread has been made in the same context.
TEST_F(LawTest, GateThatBreaksTheLaw) {
  const CUstream stream = new_stream(), side = new_stream();
  CUdeviceptr memory = 0;
  MUST(driver(), cuMemAlloc(&memory, 4096));
  Gate gate(driver());
  gate.hold(stream);
  std::atomic<bool> has_called{false};
  {
    const LockHolder holder(driver(), context(0), memory);
    std::thread later_caller([&] {
      driver().cuCtxSetCurrent(context(0));
      driver().cuMemcpyHtoDAsync(device_->at(), host_->data(), kSize, side);
      has_called = true;
    });
    std::this_thread::sleep_for(std::chrono::milliseconds(300));
    EXPECT_FALSE(has_called) << "the emulated driver no longer does what the real one does";
    gate.open();
    later_caller.join();
  }
  EXPECT_TRUE(ends(stream));
}

}  // namespace
}  // namespace braid::multipath
