// The law, first sentence, where contexts come and go: who adds or forgets one, and who opens
// relays, holds up nobody who has another, and waits for nobody there.
#include <atomic>
#include <future>
#include <thread>

#include "multipath/law_fixture.h"

namespace braid::multipath {
namespace {

using test::DeviceBuffer;
using test::Gate;
using test::LockHolder;

class LawOfContextsTest : public LawTest {};

// A driver whose streams stop for a gate behind every wait of a batch of stream operations.
struct StopsBehindWaits {
  cuda::Driver real;
  Gate& gate;
  std::atomic<int> stops{0};

  static inline StopsBehindWaits* self = nullptr;
  static CUresult batch(CUstream stream, unsigned count, CUstreamBatchMemOpParams* steps,
                        unsigned flags) {
    for (unsigned i = 0; i < count; ++i) {
      const CUresult said = self->real.cuStreamBatchMemOp(stream, 1, &steps[i], flags);
      if (said != CUDA_SUCCESS) return said;
      if (steps[i].operation == CU_STREAM_MEM_OP_WAIT_VALUE_32) {
        self->gate.hold(stream);
        ++self->stops;
      }
    }
    return CUDA_SUCCESS;
  }
};

// A stream may look at a transfer's counters long after the last kernel has left. They stay mapped
// until it is past them.
TEST_F(LawOfContextsTest, AContextThatEndsLeavesTheCountersToAStreamThatWaitsForThem) {
  Gate gate(driver());
  StopsBehindWaits stops{.real = driver(), .gate = gate};
  StopsBehindWaits::self = &stops;
  cuda::Driver stopping = driver();
  stopping.cuStreamBatchMemOp = StopsBehindWaits::batch;
  engine_.reset();
  auto opened = Engine::open(stopping, every_size());
  ASSERT_TRUE(opened.ok()) << opened.status().message();
  engine_ = std::move(opened).value();
  host_->fill_random(12);
  const CUstream stream = new_stream();
  expect_carried(stream, *device_, true);
  EXPECT_EQ(stops.stops, 1);
  while (!has_arrived(*device_)) std::this_thread::yield();
  std::promise<void> has_ended;
  std::thread ending([&] {
    driver().cuCtxSetCurrent(context(0));
    engine_->forget_context(context(0));
    has_ended.set_value();
  });
  auto ended = has_ended.get_future();
  EXPECT_EQ(ended.wait_for(std::chrono::milliseconds(500)), std::future_status::timeout)
      << "the counters are gone";
  gate.open();
  ending.join();
  EXPECT_TRUE(ends(stream));
  engine_.reset();  // before its driver
}

// Nor for another context that ends: here one whose transfer is held.
TEST_F(LawOfContextsTest, AContextThatEndsHoldsUpNoOther) {
  use_gpu(3);
  const DeviceBuffer far(driver(), kSize);
  const CUstream elsewhere = new_stream();
  use_gpu(0);
  host_->fill_random(8);
  const CUstream held = new_stream();
  Gate gate(driver());
  gate.hold(held);
  expect_carried(held, *device_, false);
  std::thread ending = test::waiting_thread([&] {
    driver().cuCtxSetCurrent(context(0));
    engine_->forget_context(context(0));
  });
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
TEST_F(LawOfContextsTest, AContextThatEndsWaitsForNoTransferOfAnother) {
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

// Nor does who adds or forgets a context wait for a thread that is in the middle of a copy to
// another, and waits there for the lock of that one, as the native copy would.
TEST_F(LawOfContextsTest, ACopyThatWaitsForItsContextHoldsUpNoOther) {
  use_gpu(3);
  const DeviceBuffer far(driver(), kSize);
  const CUstream elsewhere = new_stream();
  use_gpu(0);
  host_->fill_random(12);
  const CUstream held = new_stream(), stream = new_stream();
  CUdeviceptr memory = 0;
  MUST(driver(), cuMemAlloc(&memory, 4096));
  Gate gate(driver());
  gate.hold(held);
  const LockHolder holder(driver(), context(0), memory);
  std::atomic<bool> is_over{false};
  std::thread copying = test::waiting_thread([&] {
    driver().cuCtxSetCurrent(context(0));
    expect_carried(stream, *device_, false);
    is_over = true;
  });
  std::promise<void> has_ended;
  std::thread others([&] {
    driver().cuCtxSetCurrent(context(3));
    engine_->forget_context(context(3));
    EXPECT_TRUE(engine_->add_context(context(3)).ok());
    has_ended.set_value();
  });
  EXPECT_EQ(has_ended.get_future().wait_for(std::chrono::seconds(60)), std::future_status::ready)
      << "it waits for a copy to GPU 0";
  EXPECT_FALSE(is_over) << "nobody held the lock";
  use_gpu(3);
  expect_carried(elsewhere, far, false);
  EXPECT_TRUE(ends(elsewhere));
  EXPECT_TRUE(has_arrived(far));
  gate.open();
  others.join();
  copying.join();
  use_gpu(0);
  EXPECT_TRUE(ends(stream));
  EXPECT_TRUE(has_arrived(*device_));
}

// A context that ends waits for that thread too, which works with what is to go. Until then nobody
// else begins a copy there, and nobody adds it again.
TEST_F(LawOfContextsTest, AContextIsForgottenWhenNobodyCopiesThere) {
  host_->fill_random(13);
  const CUstream held = new_stream(), stream = new_stream();
  const Batch copy{Direction::kHostToDevice, host_->data(), device_->at(), kSize, stream};
  CUdeviceptr memory = 0;
  MUST(driver(), cuMemAlloc(&memory, 4096));
  Gate gate(driver());
  gate.hold(held);
  const LockHolder holder(driver(), context(0), memory);
  std::thread copying = test::waiting_thread([&] {
    driver().cuCtxSetCurrent(context(0));
    expect_carried(stream, *device_, false);
  });
  EXPECT_EQ(engine_->forecast(copy), Verdict::kAccelerated);
  std::atomic<bool> is_forgotten{false};
  std::thread ending([&] {
    driver().cuCtxSetCurrent(context(0));
    engine_->forget_context(context(0));
    is_forgotten = true;
  });
  (void)test::eventually([&] { return engine_->forecast(copy) != Verdict::kAccelerated; });
  EXPECT_STREQ(verdict_name(engine_->forecast(copy).verdict), "not_ready");
  EXPECT_FALSE(engine_->add_context(context(0)).ok()) << "it is ending";
  EXPECT_FALSE(is_forgotten) << "a thread is in the middle of a copy";
  gate.open();
  copying.join();
  ending.join();
  EXPECT_TRUE(ends(stream));
  EXPECT_TRUE(has_arrived(*device_));
  EXPECT_STREQ(verdict_name(engine_->forecast(copy).verdict), "foreign_context");
  EXPECT_TRUE(engine_->add_context(context(0)).ok());
  host_->fill_random(14);
  expect_carried(stream, *device_, true);
  EXPECT_TRUE(ends(stream));
  EXPECT_TRUE(has_arrived(*device_));
}

// Nor for code that is loaded into another, for which the driver waits for that one's streams.
TEST_F(LawOfContextsTest, AContextThatIsLoadedLateHoldsUpNoOther) {
  use_gpu(3);
  const DeviceBuffer far(driver(), kSize);
  const CUstream elsewhere = new_stream();
  host_->fill_random(9);
  Gate gate(driver());  // in no context that ends
  CUcontext own = nullptr;
  CUdevice device = 0;
  MUST(driver(), cuDeviceGet(&device, 0));
  MUST(driver(), create_context(&own, 0, device));
  CUstream held = nullptr;  // ends with its context, as the memory does
  MUST(driver(), cuStreamCreate(&held, CU_STREAM_NON_BLOCKING));
  CUdeviceptr memory = 0;
  MUST(driver(), cuMemAlloc(&memory, kSize));
  gate.hold(held);
  std::atomic<int> known{0};
  const auto add = [&] {
    driver().cuCtxSetCurrent(own);
    known += engine_->add_context(own).ok() ? 1 : 0;
  };
  std::thread adding(add), adding_too(add);
  std::this_thread::sleep_for(std::chrono::milliseconds(100));
  EXPECT_EQ(known, 0) << "the driver waits for no stream, or who comes second for nobody";
  const Batch there{Direction::kHostToDevice, host_->data(), memory, kSize, held};
  EXPECT_STREQ(verdict_name(engine_->submit(there).verdict), "not_ready");
  use_gpu(3);
  expect_carried(elsewhere, far, false);
  EXPECT_TRUE(ends(elsewhere));
  EXPECT_TRUE(has_arrived(far));
  gate.open();
  adding.join();
  adding_too.join();
  EXPECT_EQ(known, 2);
  EXPECT_STREQ(verdict_name(engine_->forecast(there).verdict), "accelerated");
  engine_->forget_context(own);
  MUST(driver(), cuCtxDestroy(own));
}

// Nor for a thread that waits in the middle of a copy: it might wait for one that waits for the
// relay.
TEST_F(LawOfContextsTest, OpeningWaitsForNoCopy) {
  Options options = every_size();
  options.relays.kind = RelayChoice::Kind::kList;
  options.relays.gpus = {1, 2};
  auto prepared = Engine::create(driver(), options);
  ASSERT_TRUE(prepared.ok()) << prepared.status().message();
  Engine& engine = *prepared.value();
  ASSERT_TRUE(engine.add_context(nullptr).ok());
  const auto open_for = [&](int gpu) {
    engine.request_relays(gpu_bit(gpu));
    for (bool is_more = true; is_more;) {
      const auto opened = engine.open_next_relay();
      is_more = opened.ok() && opened.value();
    }
    engine.open_targets();
  };
  open_for(1);  // over GPU 2
  use_gpu(1);
  const DeviceBuffer device(driver(), kSize);
  const CUstream held = new_stream(), stream = new_stream();
  CUdeviceptr memory = 0;
  MUST(driver(), cuMemAlloc(&memory, 4096));
  Gate gate(driver());
  gate.hold(held);
  const LockHolder holder(driver(), context(1), memory);
  std::atomic<bool> is_over{false};
  std::thread copying = test::waiting_thread([&] {
    driver().cuCtxSetCurrent(context(1));
    EXPECT_EQ(engine.submit({Direction::kHostToDevice, host_->data(), device.at(), kSize, stream}),
              Verdict::kAccelerated);
    is_over = true;
  });
  std::promise<void> has_opened;
  std::thread opener([&] {
    open_for(0);  // over GPU 1 too
    has_opened.set_value();
  });
  EXPECT_EQ(has_opened.get_future().wait_for(std::chrono::seconds(60)), std::future_status::ready)
      << "it waits for a copy of the program's";
  EXPECT_FALSE(is_over) << "nobody held the lock";
  gate.open();
  opener.join();
  copying.join();
  EXPECT_TRUE(ends(stream));
}

}  // namespace
}  // namespace braid::multipath
