// What the program does while braid's own thread is about to call the driver, or in the middle of a
// call. The interposer is linked into this test, which stands in for the program and for the driver
// at the calls in question.
#include <dlfcn.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <functional>
#include <string>
#include <thread>

#include "loader/libc_dlsym.h"
#include "preload/access.h"
#include "preload/entries.h"
#include "preload/helper.h"
#include "preload/state.h"
#include "tests/support/eventually.h"

namespace braid::preload {
namespace {

// As long as something that is not to happen is waited for.
constexpr std::chrono::milliseconds kPatience{200};

// The driver, and what it does before the calls in question.
cuda::Driver real;
std::function<void(CUmemoryPool)> before_pool_access;
std::function<void()> before_allocation;

CUresult set_pool_access(CUmemoryPool pool, const CUmemAccessDesc* descs, size_t count) {
  if (before_pool_access) before_pool_access(pool);
  return real.cuMemPoolSetAccess(pool, descs, count);
}

CUresult allocate_for_program(CUdeviceptr* address, size_t size_bytes) {
  if (before_allocation) before_allocation();
  return real.cuMemAlloc(address, size_bytes);
}

class Meanwhile : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    setenv("BRAID_SERVER", BRAID_TEST_SERVER, 1);
    setenv("CUDA_VISIBLE_DEVICES", "0,1", 1);
    find_driver();
    real.cuInit(0);
    use_gpu(0);
    Options options;
    options.relays = {RelayChoice::Kind::kList, {1}};
    auto opened = multipath::Engine::open(*driver(), options);
    ASSERT_TRUE(opened.ok()) << opened.status().message();
    ASSERT_TRUE(begin_creating());
    set_engine(std::move(opened).value());
  }
  void SetUp() override {
    before_pool_access = nullptr;
    before_allocation = nullptr;
  }

  static void use_gpu(CUdevice gpu) {
    CUcontext context = nullptr;
    ASSERT_EQ(real.cuDevicePrimaryCtxRetain(&context, gpu), CUDA_SUCCESS);
    ASSERT_EQ(real.cuCtxSetCurrent(context), CUDA_SUCCESS);
  }

  static CUmemoryPool make_pool() {
    CUmemPoolProps kind{};
    kind.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
    kind.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    CUmemoryPool pool = nullptr;
    EXPECT_EQ(cuMemPoolCreate(&pool, &kind), CUDA_SUCCESS);
    return pool;
  }

 private:
  static void find_driver() {
    void* library = dlopen(BRAID_TEST_EMULATOR, RTLD_NOW | RTLD_LOCAL);
    ASSERT_NE(library, nullptr) << dlerror();
    const auto find = [&](const char* name) { return loader::libc_dlsym(library, name); };
    for (int hook = 0; hook < kHookCount; ++hook)
      driver_function(static_cast<HookId>(hook)) = find(hooks()[static_cast<size_t>(hook)].symbol);
    driver_function(k_cuMemAlloc_v2) = reinterpret_cast<void*>(allocate_for_program);
    auto loaded = cuda::load_driver(find);
    ASSERT_TRUE(loaded.ok()) << loaded.status().message();
    real = loaded.value();
    cuda::Driver altered = real;
    altered.cuMemPoolSetAccess = set_pool_access;
    set_driver(altered);
  }
};

void grant_as_braids_thread() {
  const ReentryGuard guard;
  grant_memory_made_so_far(*engine());
}

// braid grants one pool after the other: the other is destroyed while the first one's turn has
// come.
TEST_F(Meanwhile, APoolThatTheProgramHasDestroyedIsNotGranted) {
  const CUmemoryPool pools[] = {make_pool(), make_pool()};
  CUmemoryPool destroyed = nullptr;
  before_pool_access = [&](CUmemoryPool pool) {
    EXPECT_NE(pool, destroyed) << "the driver follows a handle of nothing";
    if (destroyed != nullptr || (pool != pools[0] && pool != pools[1])) return;
    destroyed = pools[pool == pools[0] ? 1 : 0];
    std::thread([&] { EXPECT_EQ(cuMemPoolDestroy(destroyed), CUDA_SUCCESS); }).join();
  };
  grant_as_braids_thread();
  ASSERT_NE(destroyed, nullptr) << "neither was granted";
  CUmemLocation other{CU_MEM_LOCATION_TYPE_DEVICE, {1}};
  CUmemAccess_flags flags{};
  EXPECT_EQ(cuMemPoolGetAccess(&flags, destroyed, &other), CUDA_ERROR_INVALID_VALUE);
}

TEST_F(Meanwhile, ThePoolThatIsBeingGrantedStaysUntilThen) {
  const CUmemoryPool pool = make_pool();
  std::atomic<bool> is_destroyed{false};
  std::thread program;
  before_pool_access = [&](CUmemoryPool granted) {
    if (granted != pool) return;
    program = std::thread([&] {
      EXPECT_EQ(cuMemPoolDestroy(pool), CUDA_SUCCESS);
      is_destroyed = true;
    });
    std::this_thread::sleep_for(kPatience);
    EXPECT_FALSE(is_destroyed) << "the driver is using it";
  };
  grant_as_braids_thread();
  ASSERT_TRUE(program.joinable()) << "it was not granted";
  EXPECT_TRUE(test::eventually([&] { return is_destroyed.load(); }));
  program.join();
}

// The second call of the driver takes its time: braid's thread must not be faster.
TEST_F(Meanwhile, WhatARelayGivesBackIsTheProgramsAndNotTheRelaysAgain) {
  ASSERT_TRUE(start_helper());
  use_gpu(1);
  size_t free_bytes = 0, total_bytes = 0;
  real.cuMemGetInfo(&free_bytes, &total_bytes);
  int calls = 0;
  before_allocation = [&] {
    if (++calls == 2) std::this_thread::sleep_for(kPatience);
  };
  CUdeviceptr memory = 0;
  EXPECT_EQ(cuMemAlloc_v2(&memory, free_bytes + (size_t{32} << 20)), CUDA_SUCCESS);
  EXPECT_EQ(calls, 2);
  end_helper();
}

}  // namespace
}  // namespace braid::preload
