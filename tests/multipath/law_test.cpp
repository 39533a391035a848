// The law (docs/architecture.md): one test for each of its sentences. The emulated driver holds a
// context's lock as the measured one does. `GateThatBreaksTheLaw` is what these tests must catch;
// law_contexts_test.cpp has those of contexts that come and go.
#include <algorithm>
#include <atomic>
#include <functional>
#include <map>
#include <mutex>
#include <thread>
#include <utility>

#include "multipath/law_fixture.h"
#include "multipath/relay.h"
#include "multipath/transfer_state.h"
#include "support/eventually.h"

namespace braid::multipath {
namespace {

using test::DeviceBuffer;
using test::Gate;
using test::LockHolder;

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

// The same of a stream that has the handle of one that was destroyed while its transfer was held.
TEST_F(LawTest, AHeldTransferOfADestroyedStreamHoldsBackNoneOfItsSuccessor) {
  const DeviceBuffer beside(driver(), kSize);
  for (const bool is_batch : {false, true}) {
    host_->fill_random(is_batch ? 6 : 5);
    Gate gate(driver());
    CUstream held = nullptr;
    MUST(driver(), cuStreamCreate(&held, CU_STREAM_NON_BLOCKING));
    gate.hold(held);
    expect_carried(held, *device_, is_batch);
    MUST(driver(), cuStreamDestroy(held));
    const CUstream successor = new_stream();
    EXPECT_EQ(successor, held) << "this shows nothing";
    expect_carried(successor, beside, is_batch);
    EXPECT_TRUE(ends(successor)) << "it stands behind a transfer of another stream";
    EXPECT_TRUE(has_arrived(beside));
    gate.open();
    MUST(driver(), cuCtxSynchronize());
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
TEST_F(LawTest, CopiesInARowStayCarriedThoughTheStreamIsNeverIdle) {
  constexpr size_t kCopies = 60, kUnderWay = 4;
  host_->fill_random(15);
  const CUstream stream = new_stream();
  std::vector<CUevent> ends_of;
  for (size_t copy = 0; copy < kCopies; ++copy) {
    SCOPED_TRACE(copy);
    if (copy >= kUnderWay) MUST(driver(), cuEventSynchronize(ends_of[copy - kUnderWay]));
    expect_carried(stream, *device_, false);
    ends_of.push_back(new_event());
    MUST(driver(), cuEventRecord(ends_of.back(), stream));
  }
  EXPECT_TRUE(ends(stream));
  EXPECT_TRUE(has_arrived(*device_));
}

// The operations that the engine puts into each stream.
struct CountsOperations {
  static inline CountsOperations* self = nullptr;
  cuda::Driver real;
  std::mutex mutex = {};
  std::map<CUstream, uint32_t> ops = {};

  void count(CUstream stream) {
    const std::lock_guard lock(mutex);
    ++ops[stream];
  }
  static CUresult up(CUdeviceptr to, const void* from, size_t bytes, CUstream stream) {
    self->count(stream);
    return self->real.cuMemcpyHtoDAsync(to, from, bytes, stream);
  }
  static CUresult across(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream) {
    self->count(stream);
    return self->real.cuMemcpyDtoDAsync(to, from, bytes, stream);
  }
  static CUresult wait(CUstream stream, CUdeviceptr word, cuuint32_t value, unsigned flags) {
    self->count(stream);
    return self->real.cuStreamWaitValue32(stream, word, value, flags);
  }
  static CUresult write(CUstream stream, CUdeviceptr word, cuuint32_t value, unsigned flags) {
    self->count(stream);
    return self->real.cuStreamWriteValue32(stream, word, value, flags);
  }
  static CUresult record(CUevent event, CUstream stream) {
    self->count(stream);
    return self->real.cuEventRecord(event, stream);
  }
};

// With one channel, all chunks of a share stand there.
TEST_F(LawTest, AHeldStreamPutsNoMoreIntoAChannelThanTheDriverTakes) {
  CountsOperations counts{.real = driver()};
  CountsOperations::self = &counts;
  cuda::Driver counted = driver();
  counted.cuMemcpyHtoDAsync = CountsOperations::up;
  counted.cuMemcpyDtoDAsync = CountsOperations::across;
  counted.cuStreamWaitValue32 = CountsOperations::wait;
  counted.cuStreamWriteValue32 = CountsOperations::write;
  counted.cuEventRecord = CountsOperations::record;
  for (const int queues : {1, 8}) {
    engine_.reset();
    Options options = every_size();
    options.relays = {RelayChoice::Kind::kList, {1, 2}};
    options.hardware_queues = queues;
    options.device_memory_bytes = queues == 1 ? 256 << 10 : 1 << 20;  // many chunks
    auto opened = Engine::open(counted, options);
    ASSERT_TRUE(opened.ok()) << opened.status().message();
    engine_ = std::move(opened).value();
    counts.ops.clear();
    host_->fill_random(16);
    const CUstream held = new_stream();
    Gate gate(driver());
    gate.hold(held);
    int carried = 0;
    for (int copy = 0; copy < kMostOfOneStream; ++copy)
      carried += send(held, *device_, false) == Verdict::kAccelerated ? 1 : 0;
    EXPECT_GT(carried, 2);
    EXPECT_LT(carried, kMostOfOneStream) << "the bound was not reached";
    uint32_t most = 0;
    for (const auto& [stream, ops] : counts.ops)
      if (stream != held) most = std::max(most, ops);
    EXPECT_LE(most, kMostPendingOps);
    EXPECT_GT(most, kMostPendingOps / 2);
    gate.open();
    EXPECT_TRUE(ends(held));
  }
  engine_.reset();  // before its driver
}

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
