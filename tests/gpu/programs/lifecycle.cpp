// Things that end while copies use them, or right after: streams, host memory, contexts, libraries.
//   lifecycle SIZE_BYTES
#include <dlfcn.h>
#include <sys/mman.h>

#include "driver_program.h"

namespace {

using namespace program;

constexpr uint64_t kRounds = 5;

void streams_are_destroyed(size_t size_bytes) {
  unsigned char* source = pin(size_bytes);
  unsigned char* landing = pin(size_bytes);
  const CUdeviceptr device = allocate(size_bytes);
  for (uint64_t round = 0; round < kRounds; ++round) {
    const Pattern pattern(round);
    pattern.fill(source, size_bytes);
    std::memset(landing, 0, size_bytes);
    const CUstream stream = new_stream();
    to_device(device, source, size_bytes, stream);
    to_host(landing, device, size_bytes, stream);
    MUST(cuStreamDestroy(stream));
    MUST(cuCtxSynchronize());
    pattern.check(landing, size_bytes, "in a stream that was destroyed");
  }
  MUST(cuMemFree(device));
  MUST(cuMemFreeHost(source));
  MUST(cuMemFreeHost(landing));
}

// What a copy used goes as soon as its stream has been waited for: nothing may touch it later.
void memory_goes(size_t size_bytes) {
  const CUstream stream = new_stream();
  for (uint64_t round = 0; round < kRounds; ++round) {
    const Pattern pattern(10 + round);
    unsigned char* source = pin(size_bytes, pattern);
    void* landing =
        mmap(nullptr, size_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    require(landing != MAP_FAILED, "mmap");
    MUST(cuMemHostRegister(landing, size_bytes, CU_MEMHOSTREGISTER_PORTABLE));
    const CUdeviceptr device = allocate(size_bytes);
    to_device(device, source, size_bytes, stream);
    to_host(landing, device, size_bytes, stream);
    MUST(cuStreamSynchronize(stream));
    MUST(cuMemHostUnregister(landing));
    MUST(cuMemFreeHost(source));
    MUST(cuMemFree(device));
    pattern.check(landing, size_bytes, "behind its unregistering");
    munmap(landing, size_bytes);
  }
  MUST(cuStreamDestroy(stream));
}

void a_range_is_registered_again(size_t size_bytes) {
  const CUstream stream = new_stream();
  const CUdeviceptr device = allocate(size_bytes);
  void* range =
      mmap(nullptr, size_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  require(range != MAP_FAILED, "mmap");
  for (uint64_t round = 0; round < kRounds; ++round) {
    const Pattern pattern(20 + round);
    pattern.fill(range, size_bytes);
    MUST(cuMemHostRegister(range, size_bytes, CU_MEMHOSTREGISTER_PORTABLE));
    to_device(device, range, size_bytes, stream);
    MUST(cuStreamSynchronize(stream));
    std::memset(range, 0, size_bytes);
    to_host(range, device, size_bytes, stream);
    MUST(cuStreamSynchronize(stream));
    MUST(cuMemHostUnregister(range));
    pattern.check(range, size_bytes, "a range that was registered again");
  }
  munmap(range, size_bytes);
  MUST(cuMemFree(device));
  MUST(cuStreamDestroy(stream));
}

// Host memory that copies in flight were writing is the program's own again once their context is
// gone: nobody writes there any more.
void expect_quiet(unsigned char* memory, size_t size_bytes, const char* what) {
  const Pattern pattern(30);
  pattern.fill(memory, size_bytes);
  sleep_ms(100);
  pattern.check(memory, size_bytes, what);
}

void copy_and_look(size_t size_bytes, uint64_t seed) {
  const Pattern pattern(seed);
  const CUstream stream = new_stream();
  const TripBuffers buffers = make_buffers(size_bytes, pattern);
  there_and_back(buffers, size_bytes, stream);
  MUST(cuStreamSynchronize(stream));
  pattern.check(buffers.landing, size_bytes, "beside contexts that end");
  MUST(cuStreamDestroy(stream));
  free_buffers(buffers);
}

CUcontext new_context() {
  CUcontext context = nullptr;
#if CUDA_VERSION >= 13000
  MUST(cuCtxCreate(&context, nullptr, 0, 0));
#else
  MUST(cuCtxCreate(&context, 0, 0));
#endif
  return context;
}

void fill_with_copies(size_t size_bytes, unsigned char* host) {
  const CUstream stream = new_stream();
  const CUdeviceptr device = allocate(size_bytes);
  for (int copy = 0; copy < 6; ++copy) {
    to_device(device, host, size_bytes, stream);
    to_host(host, device, size_bytes, stream);
  }
}

void own_contexts_are_destroyed(size_t size_bytes, CUcontext primary) {
  unsigned char* host = pin(size_bytes);
  for (uint64_t round = 0; round < 2; ++round) {
    const CUcontext context = new_context();
    fill_with_copies(size_bytes, host);
    MUST(cuCtxDestroy(context));
    MUST(cuCtxSetCurrent(primary));
    expect_quiet(host, size_bytes, "behind its context");
    copy_and_look(size_bytes, 40 + round);
  }
  MUST(cuMemFreeHost(host));
}

// The host memory belongs to another GPU's context, so it outlives this one's.
void primary_contexts_are_reset(size_t size_bytes, const std::vector<CUcontext>& contexts) {
  MUST(cuCtxSetCurrent(contexts.back()));
  unsigned char* host = pin(size_bytes);
  MUST(cuCtxSetCurrent(contexts.front()));
  fill_with_copies(size_bytes, host);
  MUST(cuDevicePrimaryCtxReset(0));
  expect_quiet(host, size_bytes, "behind a primary context");
  CUcontext context = nullptr;
  MUST(cuDevicePrimaryCtxRetain(&context, 0));
  MUST(cuCtxSetCurrent(context));
  copy_and_look(size_bytes, 50);
}

// The library that asked for a copy is gone before the copy ends.
void a_library_is_closed(size_t size_bytes, const std::string& folder) {
  const Pattern pattern(60);
  const CUstream stream = new_stream();
  unsigned char* source = pin(size_bytes, pattern);
  unsigned char* landing = pin(size_bytes);
  const CUdeviceptr device = allocate(size_bytes);
  for (int round = 0; round < 2; ++round) {
    std::memset(landing, 0, size_bytes);
    void* library = dlopen((folder + "/libround_trip.so").c_str(), RTLD_NOW | RTLD_LOCAL);
    require(library != nullptr, "libround_trip.so is not beside the program");
    using RoundTrip = int(void*, CUdeviceptr, const void*, size_t, CUstream);
    auto* round_trip = reinterpret_cast<RoundTrip*>(dlsym(library, "round_trip"));
    require(round_trip != nullptr && round_trip(landing, device, source, size_bytes, stream) == 0,
            "the library's copies failed");
    copied(Kind::kPinned, 2 * size_bytes, 2);
    dlclose(library);
    MUST(cuStreamSynchronize(stream));
    pattern.check(landing, size_bytes, "behind the library that copied");
  }
}

}  // namespace

int main(int argc, char** argv) {
  const size_t size_bytes = size_argument(argc, argv);
  const std::string path = argv[0];
  const std::vector<CUcontext> contexts = use_gpus();
  streams_are_destroyed(size_bytes);
  memory_goes(size_bytes);
  a_range_is_registered_again(size_bytes);
  a_library_is_closed(size_bytes, path.substr(0, path.rfind('/')));
  own_contexts_are_destroyed(size_bytes, contexts.front());
  if (contexts.size() > 1) primary_contexts_are_reset(size_bytes, contexts);
  print_counts();
  return 0;
}
