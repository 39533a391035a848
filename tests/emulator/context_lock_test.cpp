// Who waits for the lock of a context while another thread holds it, as measured on 2xH200. T is
// the primary context of GPU 0, P that of GPU 1, O another one on GPU 0.
#include "emulator/model/context_lock.h"

#include <chrono>
#include <functional>
#include <memory>
#include <thread>

#include "gate.h"
#include "memory_calls.h"
#include "own_kernels.h"

namespace braid::emulator_test {
namespace {

using std::chrono::milliseconds;

// A driver call of a thread of its own. Joined when it goes out of scope.
class Caller {
 public:
  Caller(Emulated& server, CUcontext context, std::function<CUresult()> call)
      : thread_([this, &server, context, call = std::move(call)] {
          EXPECT_EQ(server.cu.cuCtxSetCurrent(context), CUDA_SUCCESS);
          has_begun_ = true;
          result_ = call();
          ended_ = true;
        }) {}
  ~Caller() { thread_.join(); }

  bool ends_within(milliseconds patience) const {
    const auto until = std::chrono::steady_clock::now() + patience;
    while (!ended_ && std::chrono::steady_clock::now() < until)
      std::this_thread::sleep_for(milliseconds(1));
    return ended_;
  }
  bool is_stuck() const {
    while (!has_begun_) std::this_thread::yield();  // busy machines start threads late
    return !ends_within(milliseconds(30));
  }
  bool goes_on() const { return ends_within(milliseconds(60'000)); }
  CUresult result() const { return result_; }

 private:
  std::atomic<bool> has_begun_ = false;
  std::atomic<bool> ended_ = false;
  CUresult result_ = CUDA_SUCCESS;
  std::thread thread_;
};

// What there is in a context for calls to be tried with.
struct Room {
  Room(Emulated& server, CUcontext in)
      : context(in), stream(server.stream()), stamp(own_kernel(server, "stamp")) {
    EXPECT_EQ(server.cu.cuCtxGetCurrent(&context), CUDA_SUCCESS);
    memory = server.device_memory(4096);
    spare = server.device_memory(4096);
    pinned = server.pinned_memory(4096);
    spare_pinned = server.pinned_memory(4096);
    std::fill(pinned, pinned + 4096, 0);
    event = server.recorded(stream);
    EXPECT_EQ(server.cu.cuCtxSynchronize(), CUDA_SUCCESS);
  }
  CUcontext context;
  CUstream stream;
  CUfunction stamp;
  CUdeviceptr memory = 0;
  CUdeviceptr spare = 0;
  uint8_t* pinned = nullptr;
  uint8_t* spare_pinned = nullptr;
  CUevent event = nullptr;
};

struct Tried {
  const char* name;
  std::function<CUresult()> call;
};
using Calls = std::vector<Tried>;

struct ContextLock : testing::Test {
  explicit ContextLock(const std::string& faults = "") : server("h200x4", faults) {}
  ~ContextLock() override {
    gate.open();
    holder.reset();
  }

  void hold_streams_of_t() { gate.close(held); }
  // In T; it waits for the stream that the gate holds.
  void start_holder(std::function<CUresult()> call) {
    hold_streams_of_t();
    holder = std::make_unique<Caller>(server, t.context, std::move(call));
    EXPECT_TRUE(holder->is_stuck());
  }
  void end_holder() {
    gate.open();
    EXPECT_TRUE(holder->goes_on());
    EXPECT_EQ(holder->result(), CUDA_SUCCESS);
  }

  // While the holder waits, these calls do, one beside the other; they end with it.
  void expect_stuck(const Room& in, const Calls& calls) {
    std::vector<std::unique_ptr<Caller>> callers;
    for (const Tried& tried : calls)
      callers.push_back(std::make_unique<Caller>(server, in.context, tried.call));
    std::this_thread::sleep_for(milliseconds(20));
    for (size_t i = 0; i < calls.size(); ++i) EXPECT_TRUE(callers[i]->is_stuck()) << calls[i].name;
    stuck.insert(stuck.end(), std::make_move_iterator(callers.begin()),
                 std::make_move_iterator(callers.end()));
  }
  void expect_free(const Room& in, const Calls& calls) {
    for (const Tried& tried : calls) {
      auto caller = std::make_unique<Caller>(server, in.context, tried.call);
      EXPECT_TRUE(caller->goes_on()) << tried.name;
      EXPECT_EQ(caller->result(), CUDA_SUCCESS) << tried.name;
      stuck.push_back(std::move(caller));  // joined when the gate is open
    }
  }
  void expect_stuck_have_ended() {
    for (const auto& caller : stuck) {
      EXPECT_TRUE(caller->goes_on());
      EXPECT_EQ(caller->result(), CUDA_SUCCESS);
    }
  }

  Calls calls_that_enqueue(const Room& in) {
    return {
        {"launch",
         [&] {
           return launch_own(server, in.stamp, StampArgs{address(in.pinned), address(in.pinned)},
                             in.stream);
         }},
        {"H2D", [&] { return server.cu.cuMemcpyHtoDAsync(in.memory, in.pinned, 64, in.stream); }},
        {"D2H", [&] { return server.cu.cuMemcpyDtoHAsync(in.pinned, in.memory, 64, in.stream); }},
        {"memset", [&] { return server.cu.cuMemsetD8Async(in.memory, 0, 64, in.stream); }},
        {"record", [&] { return server.cu.cuEventRecord(in.event, in.stream); }},
        {"alloc",
         [&] {
           CUdeviceptr made = 0;
           return server.cu.cuMemAlloc(&made, 64);
         }},
        {"pinned",
         [&] {
           void* made = nullptr;
           return server.cu.cuMemHostAlloc(&made, 64, 0);
         }},
    };
  }
  // What T's own threads may do while its lock is held.
  Calls calls_without_a_lock() {
    return {
        {"query", [&] { return server.cu.cuStreamQuery(t.stream); }},
        {"event query", [&] { return server.cu.cuEventQuery(t.event); }},
        {"wait event", [&] { return server.cu.cuStreamWaitEvent(t.stream, t.event, 0); }},
        {"write value",
         [&] { return server.cu.cuStreamWriteValue32(t.stream, address(t.pinned), 1, 0); }},
        {"wait value",
         [&] {
           return server.cu.cuStreamWaitValue32(t.stream, address(t.pinned), 1,
                                                CU_STREAM_WAIT_VALUE_GEQ);
         }},
        {"memory info",
         [&] {
           size_t free = 0, total = 0;
           return server.cu.cuMemGetInfo(&free, &total);
         }},
        {"current",
         [&] {
           CUcontext popped = nullptr;
           EXPECT_EQ(server.cu.cuCtxPushCurrent(p.context), CUDA_SUCCESS);
           EXPECT_EQ(server.cu.cuCtxPopCurrent(&popped), CUDA_SUCCESS);
           return server.cu.cuCtxSetCurrent(t.context);
         }},
        {"capture status",
         [&] {
           CUstreamCaptureStatus status;
           return server.cu.cuStreamIsCapturing(t.stream, &status);
         }},
        {"pointer", [&] { return facts_of(server, t.memory), CUDA_SUCCESS; }},
        {"synchronize stream", [&] { return server.cu.cuStreamSynchronize(t.stream); }},
        {"free of another context", [&] { return server.cu.cuMemFree(p.spare); }},
        {"free of another's pinned", [&] { return server.cu.cuMemFreeHost(p.spare_pinned); }},
    };
  }
  // In P.
  Calls calls_that_name_t() {
    return {
        {"copy", [&] { return server.cu.cuMemcpyAsync(t.memory, p.memory, 64, p.stream); }},
        {"H2D", [&] { return server.cu.cuMemcpyHtoDAsync(t.memory, p.pinned, 64, p.stream); }},
        {"peer copy",
         [&] {
           return server.cu.cuMemcpyPeerAsync(p.memory, p.context, t.memory, t.context, 64,
                                              p.stream);
         }},
        {"wait event", [&] { return server.cu.cuStreamWaitEvent(p.stream, t.event, 0); }},
    };
  }
  // A free in T stands for every holder here.
  std::function<CUresult()> free_in_t() {
    return [this] { return server.cu.cuMemFree(t.spare); };
  }
  // All that is said of one holder.
  void expect_lock_held_by(std::function<CUresult()> call) {
    start_holder(std::move(call));
    expect_free(t, calls_without_a_lock());
    expect_stuck(t, calls_that_enqueue(t));
    expect_stuck(p, calls_that_name_t());
    expect_free(p, calls_that_enqueue(p));
    expect_free(o, calls_that_enqueue(o));
    end_holder();
    expect_stuck_have_ended();
  }
  void expect_lock_free(std::function<CUresult()> call) {
    start_holder(std::move(call));
    expect_free(t, calls_that_enqueue(t));
    expect_free(p, calls_that_name_t());
    end_holder();
  }

  static uint64_t address(const void* at) { return reinterpret_cast<uint64_t>(at); }

  Emulated server;
  Room p{server, server.use(1)};
  Gate gate{server};  // outlives T
  Room t{server, server.use(0)};
  Room o{server, new_context(server, 0)};
  CUcontext current = server.use(0);
  CUstream held = server.stream();
  std::unique_ptr<Caller> holder;
  std::vector<std::unique_ptr<Caller>> stuck;
};

TEST_F(ContextLock, IsHeldByFreeing) { expect_lock_held_by(free_in_t()); }

TEST_F(ContextLock, IsHeldByFreeingFromAnotherContext) {
  expect_lock_held_by([&] {
    EXPECT_EQ(server.cu.cuCtxSetCurrent(p.context), CUDA_SUCCESS);
    return server.cu.cuMemFree(t.spare);
  });
}

TEST_F(ContextLock, IsHeldByFreeingPinnedMemory) {
  expect_lock_held_by([&] { return server.cu.cuMemFreeHost(t.spare_pinned); });
}

TEST_F(ContextLock, IsHeldByUnregistering) {
  std::vector<uint8_t> pages(1 << 16);
  ASSERT_EQ(server.cu.cuMemHostRegister(pages.data(), pages.size(), 0), CUDA_SUCCESS);
  expect_lock_held_by([&] { return server.cu.cuMemHostUnregister(pages.data()); });
}

TEST_F(ContextLock, IsHeldByLoadingAModule) {
  expect_lock_held_by([&] { return own_kernel(server, "spin"), CUDA_SUCCESS; });
}

// Through the legacy stream, which waits for the blocking ones.
struct BlockingContextLock : ContextLock {
  BlockingContextLock() { held = server.stream(CU_STREAM_DEFAULT); }
  std::vector<uint8_t> pageable = std::vector<uint8_t>(64);
};

TEST_F(BlockingContextLock, IsHeldByASynchronousCopyUp) {
  expect_lock_held_by([&] { return server.cu.cuMemcpyHtoD(t.spare, t.spare_pinned, 64); });
}

TEST_F(BlockingContextLock, IsHeldByASynchronousCopyDown) {
  expect_lock_held_by([&] { return server.cu.cuMemcpyDtoH(t.spare_pinned, t.spare, 64); });
}

TEST_F(BlockingContextLock, IsHeldByASynchronousCopyOfPageableMemory) {
  expect_lock_held_by([&] { return server.cu.cuMemcpyHtoD(t.spare, pageable.data(), 64); });
}

TEST_F(BlockingContextLock, IsHeldByACopyToPageableMemory) {
  expect_lock_held_by(
      [&] { return server.cu.cuMemcpyDtoHAsync(pageable.data(), t.spare, 64, CU_STREAM_LEGACY); });
}

TEST_F(BlockingContextLock, IsNotHeldByACopyThatWaitsForItsOwnStream) {
  expect_lock_free([&] { return server.cu.cuMemcpyDtoHAsync(pageable.data(), t.spare, 64, held); });
}

TEST_F(BlockingContextLock, IsNotHeldBySynchronizingTheLegacyStream) {
  expect_lock_free([&] { return server.cu.cuStreamSynchronize(CU_STREAM_LEGACY); });
}

TEST_F(ContextLock, IsNotHeldBySynchronizing) {
  expect_lock_free([&] { return server.cu.cuCtxSynchronize(); });
}

TEST_F(ContextLock, IsNotHeldByUnloading) {
  const auto unload = server.symbol<CUresult (*)(CUmodule)>("cuModuleUnload");
  CUmodule module = nullptr;
  ASSERT_EQ(server.symbol<decltype(&::cuFuncGetModule)>("cuFuncGetModule")(&module, t.stamp),
            CUDA_SUCCESS);
  start_holder([&] { return unload(module); });
  expect_free(p, calls_that_name_t());
  end_holder();
}

TEST_F(ContextLock, DestroyingAContextWaitsForTheOthersWithoutTheirLocks) {
  const auto destroy = server.symbol<CUresult (*)(CUcontext)>("cuCtxDestroy_v2");
  expect_lock_free([&] { return destroy(o.context); });
}

// Nobody holds anything while it waits for a lock.
TEST_F(ContextLock, WhoWaitsForItHoldsNone) {
  start_holder(free_in_t());
  expect_stuck(
      p, {{"copy", [&] { return server.cu.cuMemcpyAsync(t.memory, p.memory, 64, p.stream); }}});
  expect_free(p, calls_that_enqueue(p));
  end_holder();
  expect_stuck_have_ended();
}

TEST_F(ContextLock, FreesOfOneContextTakeTurns) {
  start_holder(free_in_t());
  expect_stuck(t, {{"free", [&] { return server.cu.cuMemFree(t.memory); }},
                   {"free pinned", [&] { return server.cu.cuMemFreeHost(t.spare_pinned); }}});
  end_holder();
  expect_stuck_have_ended();
}

// The thread that would let the stream go on cannot: only from outside does it end.
TEST_F(ContextLock, ThreadsThatWaitForEachOtherHang) {
  start_holder(free_in_t());
  Caller opener(server, t.context, [&] {
    const CUresult result = server.cu.cuMemcpyHtoDAsync(t.memory, t.pinned, 64, t.stream);
    gate.open();
    return result;
  });
  EXPECT_FALSE(opener.ends_within(milliseconds(500)));
  EXPECT_TRUE(holder->is_stuck());
  gate.open();
  EXPECT_TRUE(opener.goes_on());
}

// Work that comes after the call is nothing to wait for.
TEST_F(ContextLock, IsHeldForWhatWasEnqueuedBefore) {
  Gate later(server);
  start_holder(free_in_t());
  later.close(t.stream);
  end_holder();
  later.open();
}

TEST_F(ContextLock, EndsWithAContextThatIsReset) {
  start_holder(free_in_t());
  expect_stuck(p, {{"copy", [&] {
                      return server.cu.cuMemcpyAsync(t.memory, p.memory, 64, p.stream),
                             CUDA_SUCCESS;
                    }}});
  const auto reset = server.symbol<CUresult (*)(CUdevice)>("cuDevicePrimaryCtxReset_v2");
  EXPECT_EQ(reset(0), CUDA_SUCCESS);
  EXPECT_TRUE(holder->goes_on());
  EXPECT_TRUE(stuck[0]->goes_on());
}

struct FailingContextLock : ContextLock {
  FailingContextLock() : ContextLock(kFaultsStay) {}
};

TEST_F(FailingContextLock, EndsWithAContextThatFails) {
  const StampArgs nowhere{4, 4};
  Gate bad(server);
  bad.close(t.stream);
  ASSERT_EQ(launch_own(server, t.stamp, nowhere, t.stream), CUDA_SUCCESS);
  start_holder(free_in_t());
  expect_stuck(t, {{"copy", [&] {
                      return server.cu.cuMemcpyAsync(t.memory, t.memory, 64, t.stream) ==
                                     CUDA_ERROR_ILLEGAL_ADDRESS
                                 ? CUDA_SUCCESS
                                 : CUDA_ERROR_UNKNOWN;
                    }}});
  bad.open();
  EXPECT_TRUE(holder->goes_on());
  EXPECT_EQ(holder->result(), CUDA_ERROR_ILLEGAL_ADDRESS);
  expect_stuck_have_ended();
}

TEST(ContextLockTable, KnowsVersionsAndForms) {
  using emulator::lock_use;
  using emulator::LockUse;
  EXPECT_EQ(lock_use("cuMemFree_v2"), LockUse::kHolds);
  EXPECT_EQ(lock_use("cuMemFreeHost"), LockUse::kHolds);
  EXPECT_EQ(lock_use("cuMemFreeAsync_ptsz"), LockUse::kNeeds);
  EXPECT_EQ(lock_use("cuMemcpyHtoDAsync_v2_ptsz"), LockUse::kNeeds);
  EXPECT_EQ(lock_use("cuLaunchKernelEx"), LockUse::kNeeds);
  EXPECT_EQ(lock_use("cuStreamWaitEvent_ptsz"), LockUse::kNeedsOfOthers);
  EXPECT_EQ(lock_use("cuStreamWaitValue32_v2"), LockUse::kNever);
  EXPECT_EQ(lock_use("cuStreamBatchMemOp_v2"), LockUse::kNever);
  EXPECT_EQ(lock_use("cuMemGetInfo_v2"), LockUse::kNever);
}

}  // namespace
}  // namespace braid::emulator_test
