// Copies to and from device memory of every kind: pools, plain memory that is freed in
// the stream's order, mapped ranges, managed memory.
//   destinations SIZE_BYTES
#include "driver_program.h"

namespace {

using namespace program;

constexpr int kRounds = 6;

// Each allocation lives for two copies, and is freed in the stream's order right behind them.
void use_pool(CUmemoryPool pool, size_t size_bytes, uint64_t seed) {
  const CUstream streams[] = {new_stream(), new_stream()};
  std::vector<unsigned char*> sources, landings;
  for (int round = 0; round < kRounds; ++round) {
    sources.push_back(pin(size_bytes, Pattern(seed + static_cast<uint64_t>(round))));
    landings.push_back(pin(size_bytes));
    std::memset(landings.back(), 0, size_bytes);
  }
  for (size_t round = 0; round < kRounds; ++round) {
    const CUstream stream = streams[round % 2];
    CUdeviceptr device = 0;
    if (pool != nullptr)
      MUST(cuMemAllocFromPoolAsync(&device, size_bytes, pool, stream));
    else
      MUST(cuMemAllocAsync(&device, size_bytes, stream));
    to_device(device, sources[round], size_bytes, stream);
    to_host(landings[round], device, size_bytes, stream);
    MUST(cuMemFreeAsync(device, stream));
  }
  for (const CUstream stream : streams) MUST(cuStreamSynchronize(stream));
  for (size_t round = 0; round < kRounds; ++round) {
    Pattern(seed + round).check(landings[round], size_bytes, "a pool's memory");
    MUST(cuMemFreeHost(sources[round]));
    MUST(cuMemFreeHost(landings[round]));
  }
  for (const CUstream stream : streams) MUST(cuStreamDestroy(stream));
}

// cuMemFreeAsync takes plain memory too. To the driver it is gone when the call returns, while the
// copies before it have yet to run.
void plain_freed_in_order(size_t size_bytes) {
  const Pattern pattern(30);
  const CUstream stream = new_stream();
  const TripBuffers buffers = make_buffers(size_bytes, pattern);
  there_and_back(buffers, size_bytes, stream);
  MUST(cuMemFreeAsync(buffers.device, stream));
  MUST(cuStreamSynchronize(stream));
  pattern.check(buffers.landing, size_bytes, "memory that was freed behind its copies");
}

void own_pool(size_t size_bytes) {
  CUmemPoolProps properties{};
  properties.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  CUmemoryPool pool = nullptr;
  MUST(cuMemPoolCreate(&pool, &properties));
  use_pool(pool, size_bytes, 20);
  MUST(cuMemPoolDestroy(pool));
}

CUmemAllocationProp memory_of_gpu_0() {
  CUmemAllocationProp properties{};
  properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  return properties;
}

// Fills a reserved range with mappings of `each` bytes, for GPU 0 only.
void map(CUdeviceptr range, size_t mappings, size_t each_bytes) {
  const CUmemAllocationProp properties = memory_of_gpu_0();
  for (size_t mapping = 0; mapping < mappings; ++mapping) {
    CUmemGenericAllocationHandle memory = 0;
    MUST(cuMemCreate(&memory, each_bytes, &properties, 0));
    MUST(cuMemMap(range + mapping * each_bytes, each_bytes, 0, memory, 0));
    MUST(cuMemRelease(memory));
  }
  CUmemAccessDesc access{};
  access.location = properties.location;
  access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
  MUST(cuMemSetAccess(range, mappings * each_bytes, &access, 1));
}

// As a sleeping server does: mapped, written, read, and unmapped as soon as the stream permits.
void mapped(size_t size_bytes) {
  constexpr size_t kMappings = 3;
  const CUmemAllocationProp properties = memory_of_gpu_0();
  size_t grain_bytes = 0;
  MUST(cuMemGetAllocationGranularity(&grain_bytes, &properties, CU_MEM_ALLOC_GRANULARITY_MINIMUM));
  const size_t each_bytes = (size_bytes / kMappings + grain_bytes - 1) / grain_bytes * grain_bytes;
  const size_t whole_bytes = kMappings * each_bytes;
  CUdeviceptr range = 0;
  MUST(cuMemAddressReserve(&range, whole_bytes, 0, 0, 0));
  unsigned char* source = pin(whole_bytes);
  unsigned char* landing = pin(whole_bytes);
  const CUstream stream = new_stream();
  for (uint64_t round = 0; round < kRounds; ++round) {
    const size_t offset = round * 1000 + 3;  // over the borders of mappings, and of no grain
    const size_t part_bytes = whole_bytes - 2 * offset;
    const Pattern pattern(40 + round);
    map(range, kMappings, each_bytes);
    pattern.fill(source, part_bytes);
    std::memset(landing, 0, part_bytes);
    to_device(range + offset, source, part_bytes, stream);
    to_host(landing, range + offset, part_bytes, stream);
    MUST(cuStreamSynchronize(stream));
    MUST(cuMemUnmap(range, whole_bytes));
    pattern.check(landing, part_bytes, "a mapped range");
  }
  MUST(cuMemAddressFree(range, whole_bytes));
}

void managed(size_t size_bytes) {
  const Pattern pattern(60);
  const CUstream stream = new_stream();
  unsigned char* source = pin(size_bytes, pattern);
  unsigned char* landing = pin(size_bytes);
  CUdeviceptr memory = 0;
  MUST(cuMemAllocManaged(&memory, size_bytes, CU_MEM_ATTACH_GLOBAL));
  to_device(memory, source, size_bytes, stream, Kind::kManaged);
  to_host(landing, memory, size_bytes, stream, Kind::kManaged);
  MUST(cuStreamSynchronize(stream));
  pattern.check(landing, size_bytes, "managed memory");
  pattern.check(reinterpret_cast<void*>(memory), size_bytes, "managed memory, seen by the CPU");
  MUST(cuMemFree(memory));
}

}  // namespace

int main(int argc, char** argv) {
  const size_t size_bytes = size_argument(argc, argv);
  use_gpus(1);
  use_pool(nullptr, size_bytes, 1);
  own_pool(size_bytes);
  plain_freed_in_order(size_bytes);
  mapped(size_bytes);
  managed(size_bytes);
  print_counts();
  return 0;
}
