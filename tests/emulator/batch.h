// What the tests of cuMemcpyBatchAsync share: both its forms, found as programs find them.
#pragma once

#include "fixture.h"
#include "gate.h"

namespace braid::emulator_test {

using First = CUresult (*)(CUdeviceptr*, CUdeviceptr*, size_t*, size_t, CUmemcpyAttributes*,
                           size_t*, size_t, size_t*, CUstream);
using Second = CUresult (*)(CUdeviceptr*, CUdeviceptr*, size_t*, size_t, CUmemcpyAttributes*,
                            size_t*, size_t, CUstream);
using GetProcAddress = CUresult (*)(const char*, void**, int, cuuint64_t,
                                    CUdriverProcAddressQueryResult*);

inline constexpr size_t kNoEntry = SIZE_MAX;
inline constexpr size_t kUntouched = 12345;

inline CUdeviceptr number(const void* address) { return reinterpret_cast<CUdeviceptr>(address); }

inline CUmemcpyAttributes attributes(CUmemcpySrcAccessOrder order, unsigned flags = 0) {
  CUmemcpyAttributes made{};
  made.srcAccessOrder = order;
  made.flags = flags;
  return made;
}

// The arguments of a call; one attribute for all entries unless a test says otherwise.
struct Arguments {
  std::vector<CUdeviceptr> to;
  std::vector<CUdeviceptr> from;
  std::vector<size_t> sizes;
  std::vector<CUmemcpyAttributes> attrs{attributes(CU_MEMCPY_SRC_ACCESS_ORDER_STREAM)};
  std::vector<size_t> first{0};

  void add(CUdeviceptr to_, CUdeviceptr from_, size_t size) {
    to.push_back(to_);
    from.push_back(from_);
    sizes.push_back(size);
  }
};

struct Batch : testing::Test {
  Emulated server{"h200x4", kFaultsStay};
  CUcontext context = server.use(0);
  CUstream stream = server.stream();
  Gate gate{server};
  First first = find<First>(12080, CU_GET_PROC_ADDRESS_LEGACY_STREAM);
  Second second = find<Second>(13000, CU_GET_PROC_ADDRESS_LEGACY_STREAM);
  size_t fail_index = kUntouched;

  template <typename Function>
  Function find(int version, cuuint64_t flags) {
    void* found = nullptr;
    EXPECT_EQ(server.symbol<GetProcAddress>("cuGetProcAddress_v2")("cuMemcpyBatchAsync", &found,
                                                                   version, flags, nullptr),
              CUDA_SUCCESS);
    return reinterpret_cast<Function>(found);
  }
  CUresult call_first(Arguments& with, CUstream on) {
    fail_index = kUntouched;
    return first(with.to.data(), with.from.data(), with.sizes.data(), with.to.size(),
                 with.attrs.data(), with.first.data(), with.attrs.size(), &fail_index, on);
  }
  CUresult call_second(Arguments& with, CUstream on) {
    return second(with.to.data(), with.from.data(), with.sizes.data(), with.to.size(),
                  with.attrs.data(), with.first.data(), with.attrs.size(), on);
  }
  void refused(Arguments& with, size_t entry, const char* why) {
    EXPECT_EQ(call_first(with, stream), CUDA_ERROR_INVALID_VALUE) << why;
    EXPECT_EQ(fail_index, entry) << why;
    EXPECT_EQ(call_second(with, stream), CUDA_ERROR_INVALID_VALUE) << why;
  }
  void synchronize() { ASSERT_EQ(server.cu.cuStreamSynchronize(stream), CUDA_SUCCESS); }
  void upload(CUdeviceptr to, const std::vector<uint8_t>& bytes) {
    ASSERT_EQ(server.cu.cuMemcpyHtoD(to, bytes.data(), bytes.size()), CUDA_SUCCESS);
  }
  std::vector<uint8_t> download(CUdeviceptr from, size_t size) {
    std::vector<uint8_t> bytes(size);
    EXPECT_EQ(server.cu.cuMemcpyDtoH(bytes.data(), from, size), CUDA_SUCCESS);
    return bytes;
  }
};

}  // namespace braid::emulator_test
