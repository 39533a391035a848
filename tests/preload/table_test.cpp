// The pure half of the preload library: which requests lead to which hook, and the
// peer-access ledger.
#include <gtest/gtest.h>

#include <array>
#include <string>

#include "preload/hooks.h"

namespace braid::preload {
namespace {

constexpr int kNewest = 13000;

// A driver whose symbol of hook `id` is at address 1000 + id.
std::array<void*, kHookCount> addresses() {
  std::array<void*, kHookCount> all{};
  for (int id = 0; id < kHookCount; ++id)
    all[static_cast<size_t>(id)] = reinterpret_cast<void*>(static_cast<intptr_t>(1000 + id));
  return all;
}

// What the request leads to when the resolver hands out addresses of its own.
std::string by_request(const char* name, int version, uint64_t flags) {
  int elsewhere = 0;
  const auto hook = resolve(name, version, flags, &elsewhere, addresses(), kNewest);
  return hook ? hooks()[*hook].symbol : "";
}

std::string by_address(const char* name, int version, uint64_t flags, HookId returned) {
  const auto all = addresses();
  const auto hook = resolve(name, version, flags, all[returned], all, kNewest);
  return hook ? hooks()[*hook].symbol : "";
}

TEST(Resolve, EveryHookIsFoundByItsOwnRequest) {
  for (const Hook& hook : hooks()) {
    if (hook.since == kUnversioned) continue;
    const uint64_t flags = hook.flags == Flags::kPerThread ? 2 : 0;
    EXPECT_EQ(by_request(hook.base_name, hook.since, flags), hook.symbol);
    EXPECT_NE(by_request(hook.base_name, hook.since - 1, flags), hook.symbol);
    if (hook.until != kNoEnd) {
      EXPECT_NE(by_request(hook.base_name, hook.until, flags), hook.symbol);
    }
  }
}

TEST(Resolve, FlagsChooseTheStream) {
  EXPECT_EQ(by_request("cuMemcpyHtoDAsync", 12000, 0), "cuMemcpyHtoDAsync_v2");
  EXPECT_EQ(by_request("cuMemcpyHtoDAsync", 12000, 1), "cuMemcpyHtoDAsync_v2");
  EXPECT_EQ(by_request("cuMemcpyHtoDAsync", 12000, 2), "cuMemcpyHtoDAsync_v2_ptsz");
  EXPECT_EQ(by_request("cuMemcpy", 12000, 2), "cuMemcpy_ptds");
  EXPECT_EQ(by_request("cuMemcpyHtoD", 12000, 3), "");
  EXPECT_EQ(by_request("cuMemcpyHtoD", 12000, 4), "");
  EXPECT_EQ(by_request("cuMemHostAlloc", 12000, 2), "cuMemHostAlloc");
}

TEST(Resolve, ADeviceFunctionWithTwoFormsIsFoundByItsVersion) {
  EXPECT_EQ(by_request("cuDeviceGetUuid", 9020, 0), "cuDeviceGetUuid");
  EXPECT_EQ(by_request("cuDeviceGetUuid", 11040, 0), "cuDeviceGetUuid_v2");
  EXPECT_EQ(by_request("cuDevicePrimaryCtxRelease", 10020, 0), "cuDevicePrimaryCtxRelease");
  EXPECT_EQ(by_request("cuDevicePrimaryCtxRelease", 12000, 2), "cuDevicePrimaryCtxRelease_v2");
  EXPECT_EQ(by_request("cuDeviceGetCount", 12000, 0), "cuDeviceGetCount");
}

TEST(Resolve, The32BitAbiIsLeftAlone) {
  EXPECT_EQ(by_request("cuDeviceTotalMem", 2000, 0), "");
  EXPECT_EQ(find_symbol("cuDeviceTotalMem"), std::nullopt);
  EXPECT_EQ(by_request("cuMemcpyHtoD", 3019, 0), "");
  EXPECT_EQ(by_request("cuMemcpyDtoHAsync", 2000, 0), "");
  EXPECT_EQ(find_symbol("cuMemcpyHtoD"), std::nullopt);
  EXPECT_EQ(find_symbol("cuMemcpyDtoHAsync"), std::nullopt);
}

TEST(Resolve, ALaterCudaMayMeanAnotherAbi) {
  EXPECT_EQ(by_request("cuMemcpyHtoD", kNewest, 0), "cuMemcpyHtoD_v2");
  EXPECT_EQ(by_request("cuMemcpyHtoD", kNewest + 10, 0), "");
  // ... unless the driver's answer is an address that braid knows.
  EXPECT_EQ(by_address("cuMemcpyHtoD", kNewest + 10, 0, k_cuMemcpyHtoD_v2), "cuMemcpyHtoD_v2");
}

TEST(Resolve, TheDriversAnswerDecidesOverTheRequest) {
  // A driver that answers flag 2 with the legacy entry point.
  EXPECT_EQ(by_address("cuMemcpyHtoD", 12000, 2, k_cuMemcpyHtoD_v2), "cuMemcpyHtoD_v2");
  EXPECT_EQ(by_address("cuCtxCreate", 12000, 0, k_cuCtxCreate_v2), "cuCtxCreate_v2");
  EXPECT_EQ(by_address("cuCtxCreate", 12050, 0, k_cuCtxCreate_v4), "cuCtxCreate_v4");
  EXPECT_EQ(by_request("cuCtxCreate", 12050, 0), "");
}

TEST(Resolve, OneAddressForTwoSymbolsIsSettledByTheRequest) {
  auto all = addresses();
  all[k_cuCtxDestroy] = all[k_cuCtxDestroy_v2];
  all[k_cuMemHostRegister] = all[k_cuMemHostRegister_v2];
  EXPECT_EQ(resolve("cuCtxDestroy", 3020, 0, all[k_cuCtxDestroy], all, kNewest), k_cuCtxDestroy);
  EXPECT_EQ(resolve("cuCtxDestroy", 4000, 0, all[k_cuCtxDestroy], all, kNewest), k_cuCtxDestroy_v2);
}

TEST(Resolve, OtherNamesAreLeftAlone) {
  for (const char* name : {"cuMemcpyBatchAsync", "cuMemcpyHtoD_v2", "cuMemcpyPeer",
                           "cuDriverGetVersion", "", "cumemcpy", "cuGetExportTables"})
    EXPECT_EQ(by_request(name, 12000, 0), "") << name;
}

TEST(Names, OnlyTheDriversAreLookedAt) {
  EXPECT_TRUE(is_driver_name("cuInit"));
  for (const char* name : {"cudaMemcpy", "cudnnCreate", "cublasCreate", "cu", "c", "", "malloc"})
    EXPECT_FALSE(is_driver_name(name)) << name;
  for (const Hook& hook : hooks()) {
    EXPECT_TRUE(is_driver_name(hook.symbol));
    EXPECT_TRUE(std::string(hook.symbol).starts_with(hook.base_name)) << hook.symbol;
  }
}

}  // namespace
}  // namespace braid::preload
