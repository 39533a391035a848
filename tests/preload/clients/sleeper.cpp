// A library to be preloaded beside braid's, of torch_memory_saver's kind: what the program
// allocates it maps itself, so that it can take the memory away and put new memory at the same
// address.
#include <cuda.h>
#include <dlfcn.h>

#include <cstdio>
#include <cstdlib>
#include <map>

namespace {

constexpr size_t kGranuleBytes = size_t{2} << 20;

struct Range {
  size_t size_bytes;
  CUmemGenericAllocationHandle memory;
};
std::map<CUdeviceptr, Range> ranges;

void must(CUresult result, const char* what) {
  if (result == CUDA_SUCCESS) return;
  std::fprintf(stderr, "sleeper: %s: CUDA error %d\n", what, static_cast<int>(result));
  std::_Exit(2);
}

void map_memory(CUdeviceptr address, Range& range) {
  CUdevice gpu = 0;
  must(cuCtxGetDevice(&gpu), "cuCtxGetDevice");
  CUmemAllocationProp kind{};
  kind.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  kind.location = {CU_MEM_LOCATION_TYPE_DEVICE, {gpu}};
  CUmemAccessDesc access{};
  access.location = kind.location;
  access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
  must(cuMemCreate(&range.memory, range.size_bytes, &kind, 0), "cuMemCreate");
  must(cuMemMap(address, range.size_bytes, 0, range.memory, 0), "cuMemMap");
  must(cuMemSetAccess(address, range.size_bytes, &access, 1), "cuMemSetAccess");
}

void unmap_memory(CUdeviceptr address, Range& range) {
  must(cuMemUnmap(address, range.size_bytes), "cuMemUnmap");
  must(cuMemRelease(range.memory), "cuMemRelease");
}

}  // namespace

#define EXPORTED extern "C" __attribute__((visibility("default")))

EXPORTED CUresult cuMemAlloc_v2(CUdeviceptr* address, size_t size_bytes) {
  Range range{(size_bytes + kGranuleBytes - 1) / kGranuleBytes * kGranuleBytes, 0};
  must(cuMemAddressReserve(address, range.size_bytes, 0, 0, 0), "cuMemAddressReserve");
  map_memory(*address, range);
  ranges[*address] = range;
  return CUDA_SUCCESS;
}

EXPORTED CUresult cuMemFree_v2(CUdeviceptr address) {
  const auto at = ranges.find(address);
  if (at == ranges.end())
    return reinterpret_cast<decltype(&cuMemFree_v2)>(dlsym(RTLD_NEXT, "cuMemFree_v2"))(address);
  unmap_memory(address, at->second);
  must(cuMemAddressFree(address, at->second.size_bytes), "cuMemAddressFree");
  ranges.erase(at);
  return CUDA_SUCCESS;
}

EXPORTED void sleeper_pause() {
  for (auto& [address, range] : ranges) unmap_memory(address, range);
}

EXPORTED void sleeper_resume() {
  for (auto& [address, range] : ranges) map_memory(address, range);
}
