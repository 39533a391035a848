// Memory that is not plain: ranges mapped piece by piece, and stream-ordered pools.
#pragma once

#include <sys/mman.h>

#include <initializer_list>
#include <map>
#include <vector>

#include "support/server.h"

namespace braid::test {

inline CUmemAccessDesc access_by(int gpu,
                                 CUmemAccess_flags flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE) {
  CUmemAccessDesc wanted{};
  wanted.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  wanted.location.id = gpu;
  wanted.flags = flags;
  return wanted;
}

/// Every call must succeed.
class MemoryTest : public ServerTest {
 protected:
  static constexpr uint64_t kGranuleBytes = 2 << 20;

#define BRAID_TEST_CALL(name)                                                                \
  template <typename... Arguments>                                                           \
  void name##_(Arguments... arguments) const {                                               \
    must(driver(), reinterpret_cast<decltype(&::name)>(symbol(#name))(arguments...), #name); \
  }
  BRAID_TEST_CALL(cuMemAddressReserve)
  BRAID_TEST_CALL(cuMemAddressFree)
  BRAID_TEST_CALL(cuMemCreate)
  BRAID_TEST_CALL(cuMemRelease)
  BRAID_TEST_CALL(cuMemMap)
  BRAID_TEST_CALL(cuMemUnmap)
  BRAID_TEST_CALL(cuMemSetAccess)
  BRAID_TEST_CALL(cuMemPoolCreate)
  BRAID_TEST_CALL(cuMemPoolDestroy)
  BRAID_TEST_CALL(cuMemPoolSetAccess)
  BRAID_TEST_CALL(cuMemAllocAsync)
  BRAID_TEST_CALL(cuMemAllocFromPoolAsync)
  BRAID_TEST_CALL(cuMemFreeAsync)
#undef BRAID_TEST_CALL

  CUdeviceptr reserve(uint64_t size_bytes) {
    CUdeviceptr address = 0;
    cuMemAddressReserve_(&address, size_bytes, size_t{0}, CUdeviceptr{0}, 0ull);
    reserved_[address] = size_bytes;
    return address;
  }
  /// New memory of GPU 0, or of another place, at the addresses, for the GPUs in `wanted`.
  void map(CUdeviceptr address, uint64_t size_bytes, std::vector<CUmemAccessDesc> wanted,
           CUmemLocation place = access_by(0).location) {
    CUmemAllocationProp kind{};
    kind.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    kind.location = place;
    CUmemGenericAllocationHandle memory = 0;
    cuMemCreate_(&memory, size_bytes, &kind, 0ull);
    cuMemMap_(address, size_bytes, size_t{0}, memory, 0ull);
    cuMemRelease_(memory);
    mapped_[address] = size_bytes;
    if (!wanted.empty()) allow(address, size_bytes, wanted);
  }
  void allow(CUdeviceptr address, uint64_t size_bytes, const std::vector<CUmemAccessDesc>& wanted) {
    cuMemSetAccess_(address, size_bytes, wanted.data(), wanted.size());
  }
  void unmap(CUdeviceptr address) {
    cuMemUnmap_(address, mapped_.at(address));
    mapped_.erase(address);
  }

  CUmemoryPool new_pool() {
    CUmemPoolProps kind{};
    kind.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
    kind.location = access_by(0).location;
    CUmemoryPool pool = nullptr;
    cuMemPoolCreate_(&pool, &kind);
    pools_.push_back(pool);
    return pool;
  }
  CUdeviceptr allocate(CUmemoryPool pool, uint64_t size_bytes, CUstream stream) {
    CUdeviceptr address = 0;
    cuMemAllocFromPoolAsync_(&address, size_bytes, pool, stream);
    return address;
  }
  void free(CUdeviceptr address, CUstream stream) { cuMemFreeAsync_(address, stream); }

  void TearDown() override {
    if (IsSkipped()) return;
    while (!mapped_.empty()) unmap(mapped_.begin()->first);
    for (const auto& [address, size_bytes] : reserved_) cuMemAddressFree_(address, size_bytes);
    for (CUmemoryPool pool : pools_) cuMemPoolDestroy_(pool);
  }

 private:
  std::map<CUdeviceptr, uint64_t> reserved_, mapped_;
  std::vector<CUmemoryPool> pools_;
};

}  // namespace braid::test
