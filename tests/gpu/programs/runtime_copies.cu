// Copies of every shape and of every kind of memory, through CUDA's runtime.
//   runtime_copies SIZE_BYTES
#include <sys/mman.h>

#include "runtime_program.h"

namespace {

using namespace program;

constexpr size_t kSegmentBytes = size_t{64} << 10;

void pageable(size_t size_bytes) {
  const Pattern pattern(1);
  const cudaStream_t stream = new_stream();
  unsigned char* device = allocate(size_bytes);
  std::vector<unsigned char> source(size_bytes), landing(size_bytes);
  pattern.fill(source.data(), size_bytes);
  MUST(cudaMemcpy(device, source.data(), size_bytes, cudaMemcpyHostToDevice));
  MUST(cudaMemcpy(landing.data(), device, size_bytes, cudaMemcpyDeviceToHost));
  copied(Kind::kPageable, 2 * size_bytes, 2);
  pattern.check(landing.data(), size_bytes, "pageable memory");
  std::fill(landing.begin(), landing.end(), static_cast<unsigned char>(0));
  to_device(device, source.data(), size_bytes, stream, Kind::kPageable);
  to_host(landing.data(), device, size_bytes, stream, Kind::kPageable);
  MUST(cudaStreamSynchronize(stream));
  pattern.check(landing.data(), size_bytes, "pageable memory, asynchronously");
}

// Freed in the stream's order right behind the copies.
void pools(size_t size_bytes) {
  constexpr uint64_t kRounds = 6;
  const cudaStream_t streams[] = {new_stream(), new_stream()};
  std::vector<unsigned char*> sources, landings;
  for (uint64_t round = 0; round < kRounds; ++round) {
    sources.push_back(pin(size_bytes, Pattern(10 + round)));
    landings.push_back(pin(size_bytes));
  }
  for (uint64_t round = 0; round < kRounds; ++round) {
    const cudaStream_t stream = streams[round % 2];
    void* device = nullptr;
    MUST(cudaMallocAsync(&device, size_bytes, stream));
    to_device(device, sources[round], size_bytes, stream);
    to_host(landings[round], device, size_bytes, stream);
    MUST(cudaFreeAsync(device, stream));
  }
  MUST(cudaDeviceSynchronize());
  for (uint64_t round = 0; round < kRounds; ++round)
    Pattern(10 + round).check(landings[round], size_bytes, "cudaMallocAsync");
}

void batches(size_t size_bytes) {
  const size_t blocks = size_bytes / kSegmentBytes;
  const Pattern pattern(20);
  const cudaStream_t stream = new_stream();
  unsigned char* source = pin(blocks * kSegmentBytes, pattern);
  unsigned char* landing = pin(blocks * kSegmentBytes);
  unsigned char* device = allocate(blocks * kSegmentBytes);
  Batch<void*> there, back;
  for (size_t block = 0; block < blocks; ++block) {
    unsigned char* const slot = device + (blocks - 1 - block) * kSegmentBytes;
    there.add(slot, source + block * kSegmentBytes, kSegmentBytes);
    back.add(landing + block * kSegmentBytes, slot, kSegmentBytes);
  }
  copy_batch(there, stream);
  copy_batch(back, stream);
  MUST(cudaStreamSynchronize(stream));
  pattern.check(landing, blocks * kSegmentBytes, "a batch");
}

void rows(size_t size_bytes, size_t width, Kind kind) {
  const size_t height = size_bytes / width;
  const Pattern pattern(width);
  const cudaStream_t stream = new_stream();
  unsigned char* source = pin(width * height, pattern);
  unsigned char* landing = pin(width * height);
  unsigned char* device = allocate((width + 512) * height);
  MUST(cudaMemcpy2DAsync(device, width + 512, source, width, width, height, cudaMemcpyHostToDevice,
                         stream));
  MUST(cudaStreamSynchronize(stream));
  MUST(cudaMemcpy2D(landing, width, device, width + 512, width, height, cudaMemcpyDeviceToHost));
  copied(kind, 2 * width * height, 2);
  pattern.check(landing, width * height, "rows");
}

void layers(size_t size_bytes) {
  constexpr size_t kWidth = size_t{32} << 10, kDepth = 4;
  const size_t height = size_bytes / kWidth / kDepth;
  const size_t whole_bytes = kWidth * height * kDepth;
  const Pattern pattern(30);
  const cudaStream_t stream = new_stream();
  unsigned char* source = pin(whole_bytes, pattern);
  unsigned char* landing = pin(whole_bytes);
  unsigned char* device = allocate((kWidth + 512) * height * kDepth);
  const cudaPitchedPtr on_gpu = make_cudaPitchedPtr(device, kWidth + 512, kWidth, height);
  cudaMemcpy3DParms there{};
  there.srcPtr = make_cudaPitchedPtr(source, kWidth, kWidth, height);
  there.dstPtr = on_gpu;
  there.extent = make_cudaExtent(kWidth, height, kDepth);
  there.kind = cudaMemcpyHostToDevice;
  cudaMemcpy3DParms back{};
  back.srcPtr = on_gpu;
  back.dstPtr = make_cudaPitchedPtr(landing, kWidth, kWidth, height);
  back.extent = there.extent;
  back.kind = cudaMemcpyDeviceToHost;
  MUST(cudaMemcpy3DAsync(&there, stream));
  MUST(cudaMemcpy3DAsync(&back, stream));
  MUST(cudaStreamSynchronize(stream));
  copied(Kind::kPinned, 2 * whole_bytes, 2);
  pattern.check(landing, whole_bytes, "layers");
}

void managed(size_t size_bytes) {
  const Pattern pattern(40);
  const cudaStream_t stream = new_stream();
  unsigned char* source = pin(size_bytes, pattern);
  unsigned char* landing = pin(size_bytes);
  void* memory = nullptr;
  MUST(cudaMallocManaged(&memory, size_bytes));
  MUST(cudaMemcpyAsync(memory, source, size_bytes, cudaMemcpyDefault, stream));
  MUST(cudaMemcpyAsync(landing, memory, size_bytes, cudaMemcpyDefault, stream));
  copied(Kind::kManaged, 2 * size_bytes, 2);
  MUST(cudaStreamSynchronize(stream));
  pattern.check(landing, size_bytes, "managed memory");
}

// As KV offloading does: mapped memory that is registered, used, unregistered and registered again.
void registered(size_t size_bytes) {
  const cudaStream_t stream = new_stream();
  unsigned char* device = allocate(size_bytes);
  void* range =
      mmap(nullptr, size_bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  require(range != MAP_FAILED, "mmap");
  for (uint64_t round = 0; round < 4; ++round) {
    const Pattern pattern(50 + round);
    pattern.fill(range, size_bytes);
    MUST(cudaHostRegister(range, size_bytes, 0));
    MUST(cudaMemcpyAsync(device, range, size_bytes, cudaMemcpyDefault, stream));
    MUST(cudaStreamSynchronize(stream));
    std::memset(range, 0, size_bytes);
    MUST(cudaMemcpyAsync(range, device, size_bytes, cudaMemcpyDefault, stream));
    copied(Kind::kPinned, 2 * size_bytes, 2);
    MUST(cudaStreamSynchronize(stream));
    MUST(cudaHostUnregister(range));
    pattern.check(range, size_bytes, "registered memory");
  }
}

// Synchronous copies of pinned memory, whose memory is freed as soon as the call returns.
void synchronous(size_t size_bytes) {
  for (uint64_t round = 0; round < 4; ++round) {
    const Pattern pattern(60 + round);
    unsigned char* device = allocate(size_bytes);
    unsigned char* source = pin(size_bytes, pattern);
    unsigned char* landing = pin(size_bytes);
    MUST(cudaMemcpy(device, source, size_bytes, cudaMemcpyHostToDevice));
    MUST(cudaFreeHost(source));
    MUST(cudaMemcpy(landing, device, size_bytes, cudaMemcpyDeviceToHost));
    MUST(cudaFree(device));
    copied(Kind::kPinned, 2 * size_bytes, 2);
    pattern.check(landing, size_bytes, "a synchronous copy");
    MUST(cudaFreeHost(landing));
  }
}

}  // namespace

int main(int argc, char** argv) {
  const size_t size_bytes = size_argument(argc, argv);
  pageable(size_bytes);  // before anything has been pinned
  synchronous(size_bytes);
  registered(size_bytes);
  pools(size_bytes);
  batches(size_bytes);
  rows(size_bytes, size_t{64} << 10, Kind::kPinned);
  rows(size_bytes, size_t{1} << 10, Kind::kNarrow);
  layers(size_bytes);
  managed(size_bytes);
  print_counts();
  return 0;
}
