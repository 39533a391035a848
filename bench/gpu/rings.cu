// What kernels make of one PCIe link when they copy both ways at once, and what that costs another
// kernel: rings of bulk copies as in cuda/kernels/pull_bulk.cuh, by blocks, stages and stage size,
// beside copy engines. Needs a GPU with bulk copies (sm_90), and no library of braid.
//
//   build/tests/gpu_programs/rings
#include <cuda_runtime.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "bench/kv/decode_kernel.cu"
#include "cuda/kernels/pull_bulk.cuh"

using namespace braid::cuda;

namespace {

constexpr uint64_t kBytes = uint64_t{1} << 30;  // of each of the four buffers
constexpr uint32_t kPieceBytes = 64 << 10;
constexpr uint32_t kPieces = kBytes / kPieceBytes;
constexpr int kTurns = 5;

void must(cudaError_t result, const char* what) {
  if (result == cudaSuccess) return;
  std::fprintf(stderr, "rings: %s: %s\n", what, cudaGetErrorString(result));
  std::exit(1);
}

struct Counts {
  uint32_t next;
  uint32_t unused;
  unsigned long long moved_bytes;
  unsigned long long took_ns;
};

struct Job {
  const char* from;
  char* to;
  const uint32_t* order;  // of the pieces
  Counts* counts;
  uint64_t run_ns;
  uint32_t stage_bytes;
  uint32_t stages;
};

#if __CUDA_ARCH__ >= 900
constexpr uint32_t kMostStages = 16;

__device__ uint64_t now_ns() {
  uint64_t ns;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(ns));
  return ns;
}
#endif

// Copies pieces until its time is over.
__global__ void __launch_bounds__(32) ring(const Job job) {
#if __CUDA_ARCH__ >= 900
  extern __shared__ __align__(128) char stages[];
  __shared__ uint64_t barriers[kMostStages];
  __shared__ char* destinations[kMostStages];
  if (threadIdx.x != 0) return;
  for (uint32_t i = 0; i < job.stages; ++i)
    asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(shared_address(&barriers[i])));
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
  const uint64_t began_ns = now_ns();
  uint32_t piece = atomicAdd(&job.counts->next, 1u), left_bytes = 0, loaded = 0, stored = 0;
  uint32_t phases = 0;
  const char* from = nullptr;
  char* to = nullptr;
  bool is_over = false;
  while (true) {
    while (loaded - stored < job.stages - kBulkStoresInFlight && !is_over) {
      if (left_bytes == 0) {
        is_over = now_ns() > began_ns + job.run_ns;
        if (is_over) break;
        const uint64_t offset = uint64_t{job.order[piece % kPieces]} * kPieceBytes;
        piece = atomicAdd(&job.counts->next, 1u);
        from = job.from + offset, to = job.to + offset, left_bytes = kPieceBytes;
      }
      const uint32_t stage = loaded++ % job.stages;
      bulk_load(shared_address(stages) + stage * job.stage_bytes, from, job.stage_bytes,
                shared_address(&barriers[stage]));
      destinations[stage] = to;
      from += job.stage_bytes, to += job.stage_bytes, left_bytes -= job.stage_bytes;
    }
    if (loaded == stored) break;
    const uint32_t stage = stored++ % job.stages;
    wait_loaded(shared_address(&barriers[stage]), (phases >> stage) & 1);
    phases ^= 1u << stage;
    asm volatile(
        "cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" ::"l"(destinations[stage]),
        "r"(shared_address(stages) + stage * job.stage_bytes), "r"(job.stage_bytes)
        : "memory");
    asm volatile("cp.async.bulk.commit_group;" ::: "memory");
    asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(kBulkStoresInFlight) : "memory");
  }
  asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
  atomicAdd(&job.counts->moved_bytes, static_cast<unsigned long long>(stored) * job.stage_bytes);
  atomicMax(&job.counts->took_ns, static_cast<unsigned long long>(now_ns() - began_ns));
#endif
}

struct Ring {
  uint32_t blocks = 0;  // 0: copy engines
  uint32_t stages = 0;
  uint32_t stage_bytes = 0;

  std::string name() const {
    if (blocks == 0) return "copy engines";
    return std::to_string(blocks) + " of " + std::to_string(stages) + " x " +
           std::to_string(stage_bytes >> 10) + " KiB";
  }
};

struct Side {  // a direction
  char* from = nullptr;
  char* to = nullptr;
  cudaStream_t stream = nullptr;
  Counts* counts = nullptr;  // the GPU's
};

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

class Bench {
 public:
  Bench() {
    for (Side& side : sides_) {
      char *host = nullptr, *device = nullptr;
      must(cudaHostAlloc(&host, kBytes, 0), "pinning memory");
      must(cudaMalloc(&device, kBytes), "memory of the GPU");
      std::fill(host, host + kBytes, 1);
      must(cudaMemset(device, 2, kBytes), "filling memory");
      const bool is_to_host = &side == &sides_[1];
      side.from = is_to_host ? device : host;
      side.to = is_to_host ? host : device;
      must(cudaStreamCreateWithFlags(&side.stream, cudaStreamNonBlocking), "a stream");
      must(cudaMalloc(&side.counts, sizeof(Counts)), "memory of the GPU");
    }
    std::vector<uint32_t> order(kPieces);
    std::iota(order.begin(), order.end(), 0);
    std::shuffle(order.begin(), order.end(), std::mt19937(1));
    must(cudaMalloc(&order_, kPieces * sizeof(uint32_t)), "memory of the GPU");
    must(cudaMemcpy(order_, order.data(), kPieces * sizeof(uint32_t), cudaMemcpyDefault), "order");
    must(cudaMalloc(&cache_, kCacheBytes + sizeof(uint32_t)), "memory of the GPU");
    must(cudaMemset(cache_, 0, kCacheBytes + sizeof(uint32_t)), "filling memory");
    must(cudaStreamCreateWithFlags(&reading_, cudaStreamNonBlocking), "a stream");
    for (cudaEvent_t* event : {&begin_, &end_}) must(cudaEventCreate(event), "an event");
    must(cudaFuncSetAttribute(ring, cudaFuncAttributeMaxDynamicSharedMemorySize, 200 << 10),
         "a GPU with bulk copies");
    must(cudaDeviceGetAttribute(&multiprocessors_, cudaDevAttrMultiProcessorCount, 0), "the GPU");
  }

  // GB/s of both directions at once; null: that one is idle.
  void rates(const Ring* to_gpu, const Ring* to_host) {
    const Ring* rings[] = {to_gpu, to_host};
    std::vector<double> gbps[2];
    for (int turn = 0; turn < kTurns; ++turn) {
      reset();
      cudaEvent_t events[2][2];
      for (int i = 0; i < 2; ++i) {
        for (cudaEvent_t& event : events[i]) must(cudaEventCreate(&event), "an event");
        must(cudaEventRecord(events[i][0], sides_[i].stream), "an event");
        for (int copy = 0; rings[i] != nullptr && copy < (rings[i]->blocks == 0 ? 2 : 1); ++copy)
          start(*rings[i], i, 25'000'000, kBytes);
        must(cudaEventRecord(events[i][1], sides_[i].stream), "an event");
      }
      must(cudaDeviceSynchronize(), "copying");
      for (int i = 0; i < 2; ++i) {
        float ms = 0;
        must(cudaEventElapsedTime(&ms, events[i][0], events[i][1]), "timing");
        const Counts counts = counts_of(i);
        gbps[i].push_back(rings[i] == nullptr     ? 0
                          : rings[i]->blocks == 0 ? 2.0 * kBytes / ms / 1e6
                                                  : double(counts.moved_bytes) / counts.took_ns);
        for (const cudaEvent_t event : events[i]) must(cudaEventDestroy(event), "an event");
      }
    }
    std::printf("rates  to the GPU %-20s to the host %-20s %5.1f %5.1f GB/s, sum %5.1f\n",
                name(to_gpu).c_str(), name(to_host).c_str(), median(gbps[0]), median(gbps[1]),
                median(gbps[0]) + median(gbps[1]));
  }

  // What reading kernels of so many blocks lose by GB that is copied beside them, in us.
  double cost(int blocks, int threads, const Ring* to_gpu, const Ring* to_host) {
    const Ring* rings[] = {to_gpu, to_host};
    std::vector<double> lost_us, slow_downs;
    read(blocks, threads);
    must(cudaDeviceSynchronize(), "reading");
    for (int turn = 0; turn < kTurns; ++turn) {
      read(blocks, threads);
      must(cudaDeviceSynchronize(), "reading");
      const double alone_ms = read_ms();
      reset();
      double moved_bytes = 0;
      read(blocks, threads);
      while (cudaEventQuery(end_) == cudaErrorNotReady) {
        for (int i = 0; i < 2; ++i) {
          if (rings[i] == nullptr) continue;
          start(*rings[i], i, 1'000'000, 32 << 20);
          if (rings[i]->blocks == 0) moved_bytes += 32 << 20;
        }
        for (const Side& side : sides_) must(cudaStreamSynchronize(side.stream), "copying");
      }
      must(cudaDeviceSynchronize(), "reading");
      for (int i = 0; i < 2; ++i) moved_bytes += double(counts_of(i).moved_bytes);
      lost_us.push_back((read_ms() - alone_ms) * 1e3 / (moved_bytes / 1e9));
      slow_downs.push_back(read_ms() / alone_ms);
    }
    std::printf(
        "cost   %5d x %d: to the GPU %-20s to the host %-20s %7.0f us a GB, %.2f times as long\n",
        blocks, threads, name(to_gpu).c_str(), name(to_host).c_str(), median(lost_us),
        median(slow_downs));
    return median(lost_us);
  }

  int multiprocessors() const { return multiprocessors_; }

 private:
  static constexpr uint64_t kCacheBytes = uint64_t{256} << 20;
  static constexpr int kReads = 300;

  static std::string name(const Ring* of) { return of != nullptr ? of->name() : "nothing"; }

  void reset() {
    for (const Side& side : sides_) must(cudaMemset(side.counts, 0, sizeof(Counts)), "counts");
    must(cudaDeviceSynchronize(), "counts");
  }

  Counts counts_of(int side) const {
    Counts counts;
    must(cudaMemcpy(&counts, sides_[side].counts, sizeof(counts), cudaMemcpyDefault), "counts");
    return counts;
  }

  void start(const Ring& how, int number, uint64_t run_ns, uint64_t engine_bytes) const {
    const Side& side = sides_[number];
    if (how.blocks == 0)
      return must(cudaMemcpyAsync(side.to, side.from, engine_bytes, cudaMemcpyDefault, side.stream),
                  "a copy");
    const Job job{side.from, side.to, order_, side.counts, run_ns, how.stage_bytes, how.stages};
    ring<<<how.blocks, 32, how.stage_bytes * how.stages, side.stream>>>(job);
    must(cudaGetLastError(), "a launch");
  }

  void read(int blocks, int threads) const {
    must(cudaEventRecord(begin_, reading_), "an event");
    const auto at = reinterpret_cast<uint64_t>(cache_);
    for (int i = 0; i < kReads; ++i)
      rotation_decode<<<blocks, threads, 0, reading_>>>({at, kCacheBytes, at + kCacheBytes});
    must(cudaGetLastError(), "a launch");
    must(cudaEventRecord(end_, reading_), "an event");
  }

  double read_ms() const {
    float ms = 0;
    must(cudaEventElapsedTime(&ms, begin_, end_), "timing");
    return ms;
  }

  Side sides_[2];  // to the GPU, to the host
  uint32_t* order_ = nullptr;
  char* cache_ = nullptr;
  cudaStream_t reading_ = nullptr;
  cudaEvent_t begin_ = nullptr;
  cudaEvent_t end_ = nullptr;
  int multiprocessors_ = 1;
};

}  // namespace

int main() {
  Bench bench;
  const Ring engines, wide{4, kBulkRing.stages, kBulkRing.stage_bytes},
      wide_2{2, kBulkRing.stages, kBulkRing.stage_bytes},
      small{3, kToHostRing.stages, kToHostRing.stage_bytes}, middle{4, 12, 8 << 10},
      least{4, 8, 4 << 10}, lean{4, 12, 4 << 10};
  for (const Ring* one : {&engines, &wide, &wide_2, &middle, &lean}) bench.rates(one, nullptr);
  for (const Ring* one : {&engines, &wide, &wide_2, &small, &least}) bench.rates(nullptr, one);
  bench.rates(&engines, &engines);
  for (const Ring* to_gpu : {&wide, &wide_2, &middle, &lean})
    for (const Ring* to_host : {&wide, &wide_2, &small, &least}) bench.rates(to_gpu, to_host);
  // Once around the GPU, and many small blocks.
  for (const auto& [blocks, threads] : {std::pair(bench.multiprocessors() * 4, 512),
                                        std::pair(bench.multiprocessors() * 512, 256)}) {
    const double engines_us = bench.cost(blocks, threads, &engines, &engines);
    bench.cost(blocks, threads, &engines, nullptr);
    bench.cost(blocks, threads, nullptr, &engines);
    for (const Ring* one : {&wide, &wide_2, &small, &least})
      bench.cost(blocks, threads, nullptr, one);
    double least_us = 1e9;
    for (const Ring* to_gpu : {&wide, &wide_2, &middle, &lean})
      for (const Ring* to_host : {&wide, &wide_2, &small, &least})
        least_us = std::min(least_us, bench.cost(blocks, threads, to_gpu, to_host));
    std::printf("cost   %5d x %d: the least of both ways is %.2f times what copy engines cost\n",
                blocks, threads, least_us / engines_us);
  }
}
