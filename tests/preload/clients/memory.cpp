// Programs that map memory for chosen GPUs, and that use pools: memory NAME. What the driver
// answers about access is printed, and so compared with what it answers natively.
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <map>
#include <string>
#include <thread>
#include <utility>

#include "client.h"

namespace {

using namespace client;

constexpr size_t kSizeBytes = size_t{6} << 20;

CUmemAccessDesc access_by(int gpu, CUmemAccess_flags flags) {
  CUmemAccessDesc wanted{};
  wanted.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  wanted.location.id = gpu;
  wanted.flags = flags;
  return wanted;
}

CUdeviceptr reserve() {
  CUdeviceptr address = 0;
  call("cuMemAddressReserve", &address, kSizeBytes, size_t{0}, CUdeviceptr{0}, 0ull);
  return address;
}

void set_access(CUdeviceptr range, int gpu, CUmemAccess_flags flags) {
  const CUmemAccessDesc wanted = access_by(gpu, flags);
  call("cuMemSetAccess", range, kSizeBytes, &wanted, size_t{1});
}

// Memory of GPU 0, for GPU 0.
void map(CUdeviceptr range) {
  CUmemAllocationProp kind{};
  kind.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  kind.location = access_by(0, CU_MEM_ACCESS_FLAGS_PROT_NONE).location;
  CUmemGenericAllocationHandle memory = 0;
  call("cuMemCreate", &memory, kSizeBytes, &kind, 0ull);
  call("cuMemMap", range, kSizeBytes, size_t{0}, memory, 0ull);
  call("cuMemRelease", memory);
  set_access(range, 0, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
}

void print_access(const char* when, CUdeviceptr range) {
  std::printf("%s:", when);
  for (int gpu = 0; gpu < 3; ++gpu) {
    unsigned long long flags = 9;
    const CUmemLocation location = access_by(gpu, CU_MEM_ACCESS_FLAGS_PROT_NONE).location;
    call("cuMemGetAccess", &flags, &location, range);
    std::printf(" %llu", flags);
  }
  std::printf("\n");
}

void print_access(const char* when, CUmemoryPool pool) {
  std::printf("%s:", when);
  for (int gpu = 0; gpu < 3; ++gpu) {
    CUmemAccess_flags flags{};
    CUmemLocation location = access_by(gpu, CU_MEM_ACCESS_FLAGS_PROT_NONE).location;
    call("cuMemPoolGetAccess", &flags, pool, &location);
    std::printf(" %d", static_cast<int>(flags));
  }
  std::printf("\n");
}

void copy_and_look(uint64_t seed, uint8_t* host, CUdeviceptr device) {
  Random(seed).fill(host, kSizeBytes);
  call("cuMemcpyHtoDAsync_v2", device, static_cast<const void*>(host), kSizeBytes,
       static_cast<CUstream>(nullptr));
  call("cuCtxSynchronize");
  std::vector<uint8_t> got(kSizeBytes);
  read_in_pieces(got.data(), device, kSizeBytes);
  require(std::memcmp(got.data(), host, kSizeBytes) == 0, "wrong bytes");
}

// Mapped before braid is ready, looked at, changed, and mapped anew as a sleeping server does.
int mapped() {
  use_gpu(0);
  const CUdeviceptr range = reserve();
  map(range);
  set_access(range, 2, CU_MEM_ACCESS_FLAGS_PROT_READ);
  uint8_t* host = pin(kSizeBytes);
  print_access("mapped", range);
  copy_and_look(1, host, range);
  set_access(range, 1, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
  print_access("given", range);
  set_access(range, 1, CU_MEM_ACCESS_FLAGS_PROT_NONE);
  print_access("taken", range);
  copy_and_look(2, host, range);
  call("cuMemUnmap", range, kSizeBytes);
  map(range);
  print_access("mapped again", range);
  copy_and_look(3, host, range);
  const CUmemAccessDesc nowhere = access_by(77, CU_MEM_ACCESS_FLAGS_PROT_READ);
  std::printf("nowhere: %d\n",
              get<decltype(cuMemSetAccess)>("cuMemSetAccess")(range, kSizeBytes, &nowhere, 1));
  call("cuMemUnmap", range, kSizeBytes);
  call("cuMemAddressFree", range, kSizeBytes);
  return 0;
}

// What the driver will not unmap stays mapped, with the access that it had.
int refused_unmaps() {
  use_gpu(0);
  const CUdeviceptr one = reserve(), other = reserve();
  const CUdeviceptr lower = std::min(one, other), higher = std::max(one, other);
  map(lower);
  map(higher);
  set_access(higher, 2, CU_MEM_ACCESS_FLAGS_PROT_READ);
  uint8_t* host = pin(kSizeBytes);
  copy_and_look(1, host, higher);
  const std::pair<CUdeviceptr, size_t> ranges[] = {{higher, lower - higher},  // wraps
                                                   {higher, kSizeBytes / 3},
                                                   {higher + kSizeBytes / 3, kSizeBytes},
                                                   {lower, SIZE_MAX - lower}};
  for (const auto& [at, size_bytes] : ranges) {
    std::printf("unmap: %d\n", get<decltype(cuMemUnmap)>("cuMemUnmap")(at, size_bytes));
    print_access("above", higher);
    print_access("below", lower);
  }
  set_access(higher, 1, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
  set_access(higher, 1, CU_MEM_ACCESS_FLAGS_PROT_NONE);
  print_access("taken", higher);
  copy_and_look(2, host, higher);
  for (const CUdeviceptr range : {lower, higher}) {
    call("cuMemUnmap", range, kSizeBytes);
    call("cuMemAddressFree", range, kSizeBytes);
  }
  return 0;
}

void use_pool(CUmemoryPool pool, uint8_t* host, uint64_t seed) {
  CUdeviceptr device = 0;
  const auto stream = static_cast<CUstream>(nullptr);
  call("cuMemAllocFromPoolAsync", &device, kSizeBytes, pool, stream);
  copy_and_look(seed, host, device);
  call("cuMemFreeAsync", device, stream);
  call("cuCtxSynchronize");
}

// Of GPU 0's memory.
CUmemoryPool make_pool() {
  CUmemPoolProps kind{};
  kind.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
  kind.location = access_by(0, CU_MEM_ACCESS_FLAGS_PROT_NONE).location;
  CUmemoryPool pool = nullptr;
  call("cuMemPoolCreate", &pool, static_cast<const CUmemPoolProps*>(&kind));
  return pool;
}

// One pool from before braid is ready, one from after, and the driver's own.
int pools() {
  use_gpu(0);
  const CUmemoryPool early = make_pool();
  uint8_t* host = pin(kSizeBytes);
  const CUmemoryPool late = make_pool();
  CUmemoryPool usual = nullptr;
  call("cuDeviceGetDefaultMemPool", &usual, CUdevice{0});
  for (CUmemoryPool pool : {early, late, usual}) {
    print_access("new", pool);
    use_pool(pool, host, 4);
    for (const CUmemAccess_flags flags :
         {CU_MEM_ACCESS_FLAGS_PROT_READWRITE, CU_MEM_ACCESS_FLAGS_PROT_NONE}) {
      const CUmemAccessDesc wanted = access_by(1, flags);
      call("cuMemPoolSetAccess", pool, &wanted, size_t{1});
      print_access("set", pool);
    }
    use_pool(pool, host, 5);
  }
  std::printf("destroy: %d\n", get<decltype(cuMemPoolDestroy)>("cuMemPoolDestroy")(usual));
  print_access("stays", usual);
  call("cuMemPoolDestroy", early);
  call("cuMemPoolDestroy", late);
  return 0;
}

// A driver that lets calls which set access wait for streams (EMULATED_SETTING_ACCESS_WAITS): one
// thread waits there, while this one asks about other memory and frees it, and then lets go of the
// stream.
template <typename Memory>
int ask_meanwhile(const Memory& set_in_thread) {
  constexpr unsigned kPatienceS = 60;
  alarm(kPatienceS);  // ends it where it hangs
  use_gpu(0);
  uint8_t* host = pin(kSizeBytes);
  auto* word = reinterpret_cast<uint32_t*>(pin(sizeof(uint32_t)));
  const CUdeviceptr range = reserve();
  map(range);
  const CUmemoryPool pool = make_pool();
  const auto set = set_in_thread();
  CUcontext context = nullptr;
  call("cuCtxGetCurrent", &context);
  CUstream held = nullptr;
  call("cuStreamCreate", &held, static_cast<unsigned>(CU_STREAM_NON_BLOCKING));
  call("cuStreamWaitValue32_v2", held, reinterpret_cast<CUdeviceptr>(word), 1u,
       static_cast<unsigned>(CU_STREAM_WAIT_VALUE_GEQ));
  std::atomic<bool> has_set = false;
  std::thread thread([&] {
    call("cuCtxSetCurrent", context);
    set();
    has_set = true;
  });
  std::this_thread::sleep_for(std::chrono::milliseconds(200));
  print_access("meanwhile", range);
  print_access("meanwhile", pool);
  CUstream other = nullptr;
  call("cuStreamCreate", &other, static_cast<unsigned>(CU_STREAM_NON_BLOCKING));
  call("cuMemcpyHtoDAsync_v2", range, static_cast<const void*>(host), kSizeBytes, other);
  call("cuStreamSynchronize", other);
  call("cuMemUnmap", range, kSizeBytes);
  call("cuMemPoolDestroy", pool);
  require(!has_set, "nothing has waited");
  std::atomic_ref(*word).store(1);
  thread.join();
  return 0;
}

int a_range_waits() {
  CUdeviceptr range = 0;
  const int result = ask_meanwhile([&] {
    map(range = reserve());
    return [range] { set_access(range, 1, CU_MEM_ACCESS_FLAGS_PROT_READ); };
  });
  print_access("set", range);
  return result;
}

int a_pool_waits() {
  CUmemoryPool pool = nullptr;
  const int result = ask_meanwhile([&] {
    pool = make_pool();
    return [pool] {
      const CUmemAccessDesc wanted = access_by(1, CU_MEM_ACCESS_FLAGS_PROT_READ);
      call("cuMemPoolSetAccess", pool, &wanted, size_t{1});
    };
  });
  print_access("set", pool);
  return result;
}

}  // namespace

int main(int argc, char** argv) {
  const std::map<std::string, int (*)()> scenarios = {{"mapped", mapped},
                                                      {"refused_unmaps", refused_unmaps},
                                                      {"pools", pools},
                                                      {"a_range_waits", a_range_waits},
                                                      {"a_pool_waits", a_pool_waits}};
  const auto scenario = scenarios.find(argc > 1 ? argv[1] : "");
  require(use_lookup("dlsym"), "no driver");
  require(scenario != scenarios.end(), "no such scenario");
  return scenario->second();
}
