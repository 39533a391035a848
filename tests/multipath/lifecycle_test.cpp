// Opening, closing, and contexts that come and go.
#include <algorithm>
#include <cstring>

#include "cuda/queries.h"
#include "support/server.h"

namespace braid::multipath {
namespace {

using test::DeviceBuffer;
using test::HostBuffer;

constexpr uint64_t kSize = 16 << 20;

class LifecycleTest : public test::ServerTest {
 protected:
  using Create = CUresult (*)(CUcontext*, unsigned, CUdevice);
  using Destroy = CUresult (*)(CUcontext);

  CUcontext create_context(int gpu) {
    const auto create = reinterpret_cast<Create>(symbol("cuCtxCreate_v2"));
    CUdevice device = 0;
    CUcontext context = nullptr;
    MUST(driver(), cuDeviceGet(&device, gpu));
    EXPECT_EQ(create(&context, 0, device), CUDA_SUCCESS);
    return context;
  }
  void destroy_context(CUcontext context) {
    EXPECT_EQ(reinterpret_cast<Destroy>(symbol("cuCtxDestroy_v2"))(context), CUDA_SUCCESS);
  }
  // The program's holds, however many tests of this process there were.
  void release_primary(CUdevice device) {
    const auto release =
        reinterpret_cast<CUresult (*)(CUdevice)>(symbol("cuDevicePrimaryCtxRelease_v2"));
    while (cuda::has_primary_context(driver(), device)) ASSERT_EQ(release(device), CUDA_SUCCESS);
  }
  size_t free_bytes(int gpu) {
    use_gpu(gpu);
    size_t free = 0, total = 0;
    MUST(driver(), cuMemGetInfo(&free, &total));
    return free;
  }
};

TEST_F(LifecycleTest, OpeningKeepsTheCallersContext) {
  use_gpu(1);
  auto engine = open_engine();
  CUcontext current = nullptr;
  MUST(driver(), cuCtxGetCurrent(&current));
  EXPECT_EQ(current, context(1));
  HostBuffer host(driver(), kSize);
  DeviceBuffer device(driver(), kSize);
  const CUstream stream = new_stream();
  ASSERT_EQ(engine->submit({Direction::kHostToDevice, host.data(), device.at(), kSize, stream}),
            Verdict::kAccelerated);
  MUST(driver(), cuCtxGetCurrent(&current));
  EXPECT_EQ(current, context(1));
  synchronize(stream);
}

// As the interposer opens, beside the program: a relay's context ends between two steps.
TEST_F(LifecycleTest, OpensInSteps) {
  use_gpu(0);
  HostBuffer host(driver(), kSize);
  DeviceBuffer device(driver(), kSize);
  const CUstream stream = new_stream();
  const auto prepared = Engine::create(driver(), every_size());
  ASSERT_TRUE(prepared.ok()) << prepared.status().message();
  Engine& engine = *prepared.value();
  const auto copy = [&]() -> Verdict {
    return engine.submit({Direction::kHostToDevice, host.data(), device.at(), kSize, stream})
        .verdict;
  };
  engine.request_relays(kEveryGpu);
  int steps = 0;
  while (true) {
    EXPECT_EQ(copy(), Verdict::kNotReady);
    const auto is_more = engine.open_next_relay();
    ASSERT_TRUE(is_more.ok()) << is_more.status().message();
    if (!is_more.value()) break;
    ++steps;
    if (steps != 2 && steps != gpus()) continue;
    engine.forget_context(context(1));
    const auto reset =
        reinterpret_cast<CUresult (*)(CUdevice)>(symbol("cuDevicePrimaryCtxReset_v2"));
    EXPECT_EQ(reset(1), CUDA_SUCCESS);
  }
  EXPECT_EQ(copy(), Verdict::kNotReady);
  EXPECT_FALSE(engine.are_relays_open());
  EXPECT_TRUE(engine.add_context(nullptr).ok());
  engine.open_targets();
  EXPECT_TRUE(engine.are_relays_open());
  EXPECT_EQ(copy(), Verdict::kAccelerated);
  synchronize(stream);
  EXPECT_EQ(engine.collect(1000).size(), static_cast<size_t>(gpus())) << "a path is missing";
  EXPECT_TRUE(engine.problems().empty());
}

// A worker that copies to one GPU has no context of braid's there; that comes with the first copy
// of a neighbour's.
TEST_F(LifecycleTest, OnlyRelaysThatCopiesWantAreOpened) {
  const auto prepared = Engine::create(driver(), every_size());
  ASSERT_TRUE(prepared.ok()) << prepared.status().message();
  Engine& engine = *prepared.value();
  ASSERT_TRUE(engine.add_context(nullptr).ok());
  const auto open_wanted = [&] {
    int steps = 0;
    for (; engine.open_next_relay().value(); ++steps) continue;
    engine.open_targets();
    EXPECT_TRUE(engine.are_relays_open());
    return steps;
  };
  HostBuffer host(driver(), kSize);
  const auto copy = [&](int gpu) {
    use_gpu(gpu);
    DeviceBuffer device(driver(), kSize);
    const CUstream stream = new_stream();
    const Outcome outcome =
        engine.submit({Direction::kHostToDevice, host.data(), device.at(), kSize, stream});
    synchronize(stream);
    return outcome.verdict;
  };
  EXPECT_FALSE(engine.open_next_relay().value()) << "nothing is wanted";
  EXPECT_EQ(copy(0), Verdict::kNotReady);
  const size_t before_bytes = free_bytes(0);
  EXPECT_EQ(open_wanted(), gpus() - 1);
  EXPECT_LT(before_bytes - free_bytes(0), 32u << 20) << "transfers, but no context";
  EXPECT_EQ(copy(0), Verdict::kAccelerated);
  EXPECT_EQ(copy(1), Verdict::kNotReady);
  EXPECT_FALSE(engine.are_relays_open());
  EXPECT_EQ(copy(0), Verdict::kAccelerated) << "while the relay for the others opens";
  EXPECT_EQ(open_wanted(), 1);
  EXPECT_EQ(copy(1), Verdict::kAccelerated);
  EXPECT_EQ(engine.collect(1000).size(), 2 * static_cast<size_t>(gpus())) << "a path is missing";
}

TEST_F(LifecycleTest, ClosingGivesBackEveryByteOfDeviceMemory) {
  use_gpu(0);
  const CUstream stream = new_stream();  // it takes memory, and stays until the test has ended
  const auto open_copy_and_close = [&] {
    use_gpu(0);
    auto engine = open_engine();
    HostBuffer host(driver(), kSize);
    DeviceBuffer device(driver(), kSize);
    ASSERT_EQ(engine->submit({Direction::kHostToDevice, host.data(), device.at(), kSize, stream}),
              Verdict::kAccelerated);
    synchronize(stream);
  };
  // The driver fills caches of its own first, and takes back some memory late. So what counts is
  // the most that is free after any of several rounds.
  constexpr int kRounds = 10;
  const auto most_free_bytes = [&] {
    std::vector<size_t> most(static_cast<size_t>(gpus()));
    for (int round = 0; round < kRounds; ++round) {
      open_copy_and_close();
      for (int gpu = 0; gpu < gpus(); ++gpu) most[gpu] = std::max(most[gpu], free_bytes(gpu));
    }
    return most;
  };
  (void)most_free_bytes();
  const std::vector<size_t> before = most_free_bytes();
  const std::vector<size_t> after = most_free_bytes();
  for (int gpu = 0; gpu < gpus(); ++gpu) EXPECT_GE(after[gpu], before[gpu]) << gpu;
}

TEST_F(LifecycleTest, ClosingWaitsForTransfersInFlight) {
  auto engine = open_engine();
  HostBuffer host(driver(), kSize), landing(driver(), kSize);
  host.fill_random(5);
  DeviceBuffer device(driver(), kSize);
  const CUstream stream = new_stream();
  ASSERT_EQ(engine->submit({Direction::kHostToDevice, host.data(), device.at(), kSize, stream}),
            Verdict::kAccelerated);
  engine.reset();
  MUST(driver(), cuMemcpyDtoHAsync(landing.data(), device.at(), kSize, stream));
  synchronize(stream);
  EXPECT_EQ(std::memcmp(host.data(), landing.data(), kSize), 0);
}

TEST_F(LifecycleTest, AContextOfTheProgramsOwnBecomesATarget) {
  auto engine = open_engine();
  const CUcontext own = create_context(0);
  {
    HostBuffer host(driver(), kSize), landing(driver(), kSize);
    host.fill_random(6);
    DeviceBuffer device(driver(), kSize);
    CUstream stream = nullptr;  // ends with its context
    MUST(driver(), cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    const Batch there{Direction::kHostToDevice, host.data(), device.at(), kSize, stream};
    const Batch back{Direction::kDeviceToHost, landing.data(), device.at(), kSize, stream};
    EXPECT_EQ(engine->submit(there), Verdict::kForeignContext);
    ASSERT_TRUE(engine->add_context(own).ok());
    ASSERT_EQ(engine->submit(there), Verdict::kAccelerated);
    ASSERT_EQ(engine->submit(back), Verdict::kAccelerated);
    synchronize(stream);
    EXPECT_EQ(std::memcmp(host.data(), landing.data(), kSize), 0);
    engine->forget_context(own);
    EXPECT_EQ(engine->submit(there), Verdict::kForeignContext);
  }
  destroy_context(own);
  use_gpu(0);
}

// The program ends it as it ends others, and the next one may have the same handle: what braid
// knows of a primary context must not outlive it.
TEST_F(LifecycleTest, APrimaryContextIsHeldUntilItIsForgotten) {
  const auto release =
      reinterpret_cast<CUresult (*)(CUdevice)>(symbol("cuDevicePrimaryCtxRelease_v2"));
  const auto retain = [&] {
    CUcontext primary = nullptr;
    MUST(driver(), cuDevicePrimaryCtxRetain(&primary, 1));
    MUST(driver(), cuCtxSetCurrent(primary));
    return primary;
  };
  release_primary(1);
  use_gpu(0);
  HostBuffer host(driver(), kSize), landing(driver(), kSize);
  host.fill_random(7);
  auto engine = open_engine();
  const CUcontext first = retain();
  const auto copy = [&] {  // by kernels, which are the context's
    CUstream stream = nullptr;
    MUST(driver(), cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    {
      DeviceBuffer device(driver(), kSize);
      const Segment halves[] = {{host.data() + kSize / 2, device.at(kSize / 2), kSize / 2},
                                {host.data(), device.at(), kSize / 2}};
      EXPECT_EQ(engine->submit(Batch{Direction::kHostToDevice, halves, stream}),
                Verdict::kAccelerated);
      synchronize(stream);
      MUST(driver(), cuMemcpyDtoH(landing.data(), device.at(), kSize));
    }
    MUST(driver(), cuStreamDestroy(stream));
    EXPECT_EQ(std::memcmp(host.data(), landing.data(), kSize), 0);
  };
  ASSERT_TRUE(engine->add_context(first).ok());
  copy();
  EXPECT_EQ(release(1), CUDA_SUCCESS);
  EXPECT_TRUE(cuda::has_primary_context(driver(), 1)) << "braid does not hold it";
  const CUcontext second = retain();
  ASSERT_TRUE(engine->add_context(second).ok());
  copy();
  engine->forget_context(second);
  EXPECT_EQ(release(1), CUDA_SUCCESS);
  EXPECT_FALSE(cuda::has_primary_context(driver(), 1)) << "braid holds it";
  retain();  // as it was
  use_gpu(0);
}

// What is not the primary context leaves that one to the program.
TEST_F(LifecycleTest, AnotherContextOfTheGpuHoldsNoPrimaryOne) {
  const auto release =
      reinterpret_cast<CUresult (*)(CUdevice)>(symbol("cuDevicePrimaryCtxRelease_v2"));
  release_primary(1);
  auto engine = open_engine();
  CUcontext primary = nullptr;
  MUST(driver(), cuDevicePrimaryCtxRetain(&primary, 1));
  const CUcontext own = create_context(1);
  EXPECT_TRUE(engine->add_context(own).ok());
  EXPECT_EQ(release(1), CUDA_SUCCESS);
  EXPECT_FALSE(cuda::has_primary_context(driver(), 1));
  engine->forget_context(own);
  destroy_context(own);
  MUST(driver(), cuDevicePrimaryCtxRetain(&primary, 1));  // as it was
  use_gpu(0);
}

// Relays are in contexts of braid's own.
TEST_F(LifecycleTest, AGpuWhosePrimaryContextEndsRelaysOn) {
  auto engine = open_engine();
  engine->forget_context(context(1));
  const auto reset = reinterpret_cast<CUresult (*)(CUdevice)>(symbol("cuDevicePrimaryCtxReset_v2"));
  EXPECT_EQ(reset(1), CUDA_SUCCESS);
  use_gpu(0);
  HostBuffer host(driver(), 8 * kSize), landing(driver(), 8 * kSize);
  host.fill_random(6);
  DeviceBuffer device(driver(), 8 * kSize);
  const CUstream stream = new_stream();
  ASSERT_EQ(engine->submit({Direction::kHostToDevice, host.data(), device.at(), 8 * kSize, stream}),
            Verdict::kAccelerated);
  MUST(driver(), cuMemcpyDtoHAsync(landing.data(), device.at(), 8 * kSize, stream));
  synchronize(stream);
  EXPECT_EQ(std::memcmp(host.data(), landing.data(), 8 * kSize), 0);
  bool has_relayed = false;
  for (const PathCount& count : engine->collect(1000)) has_relayed = has_relayed || count.via == 1;
  EXPECT_TRUE(has_relayed);
}

TEST_F(LifecycleTest, TwoEnginesInOneProcessDoNotDisturbEachOther) {
  auto first = open_engine();
  auto second = open_engine();
  HostBuffer host(driver(), kSize), landing(driver(), kSize);
  host.fill_random(13);
  DeviceBuffer device(driver(), kSize);
  const CUstream stream = new_stream();
  ASSERT_EQ(first->submit({Direction::kHostToDevice, host.data(), device.at(), kSize, stream}),
            Verdict::kAccelerated);
  ASSERT_EQ(second->submit({Direction::kDeviceToHost, landing.data(), device.at(), kSize, stream}),
            Verdict::kAccelerated);
  synchronize(stream);
  EXPECT_EQ(std::memcmp(host.data(), landing.data(), kSize), 0);
}

}  // namespace
}  // namespace braid::multipath
