// batch_calls [ENTRIES [ENTRY_BYTES]]: what one call of cuMemcpyBatchAsync costs the CPU, natively
// and through braid, which is linked in; and which calls of the driver braid makes in it. On the
// emulated server, whose driver takes other times than a real one: what counts is how many calls
// there are, and what braid takes beside them. Medians.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "bench/cpu/metered_driver.h"
#include "preload/binding.h"

// The linker's --wrap: braid's own table is metered.
#define BENCH_LOAD_DRIVER "_ZN5braid4cuda11load_driverERKSt8functionIFPvPKcEE"

namespace braid::cuda {
Result<Driver> load_real_driver(const SymbolLookup& lookup) asm("__real_" BENCH_LOAD_DRIVER);
Result<Driver> load_metered_driver(const SymbolLookup& lookup) asm("__wrap_" BENCH_LOAD_DRIVER);
Result<Driver> load_metered_driver(const SymbolLookup& lookup) {
  auto loaded = load_real_driver(lookup);
  if (!loaded.ok()) return loaded;
  return bench::metered(loaded.value());
}
}  // namespace braid::cuda

namespace braid::bench {
namespace {

using std::chrono::nanoseconds;
using std::chrono::steady_clock;

constexpr int kRounds = 21;

void must(CUresult result, const char* call) {
  if (result == CUDA_SUCCESS) return;
  std::fprintf(stderr, "batch_calls: %s: error %d\n", call, static_cast<int>(result));
  std::exit(1);
}
#define MUST(call) must(call, #call)

struct Entries {
  std::vector<CUdeviceptr> to, from;
  std::vector<size_t> sizes;
};

double median_us(std::vector<nanoseconds> times) {
  std::sort(times.begin(), times.end());
  return static_cast<double>(times[times.size() / 2].count()) / 1e3;
}

// Entries that lie in so many allocations of the GPU in turn, as the blocks of a KV cache do in its
// layers'. None continues another.
class Program {
 public:
  Program(const cuda::Driver& driver, size_t count, size_t entry_bytes, size_t allocations)
      : driver_(driver) {
    const size_t each_bytes = (count / allocations + 1) * entry_bytes;
    for (size_t i = 0; i < allocations; ++i)
      MUST(driver_.cuMemAlloc(&memory_.emplace_back(), each_bytes));
    MUST(driver_.cuMemHostAlloc(&host_, count * entry_bytes, CU_MEMHOSTALLOC_PORTABLE));
    MUST(driver_.cuStreamCreate(&stream_, CU_STREAM_NON_BLOCKING));
    for (size_t i = 0; i < count; ++i) {
      entries_.to.push_back(memory_[i % allocations] + i / allocations * entry_bytes);
      entries_.from.push_back(reinterpret_cast<CUdeviceptr>(host_) + (count - 1 - i) * entry_bytes);
      entries_.sizes.push_back(entry_bytes);
    }
  }
  ~Program() {
    for (const CUdeviceptr memory : memory_) driver_.cuMemFree(memory);
    driver_.cuMemFreeHost(host_);
    driver_.cuStreamDestroy(stream_);
  }
  Program(const Program&) = delete;
  Program& operator=(const Program&) = delete;

  // Of lists that have just been written, as a program's are: the caches hold them.
  nanoseconds call(decltype(cuda::Driver::copy_batch) copy_batch) {
    Entries now = entries_;
    CUmemcpyAttributes attributes{};
    attributes.srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_STREAM;
    size_t start = 0, failed = 0;
    const auto begin = steady_clock::now();
    const CUresult copied = copy_batch(now.to.data(), now.from.data(), now.sizes.data(),
                                       now.sizes.size(), &attributes, &start, 1, &failed, stream_);
    const nanoseconds took = steady_clock::now() - begin;
    must(copied, "cuMemcpyBatchAsync");
    MUST(driver_.cuStreamSynchronize(stream_));
    return took;
  }

 private:
  const cuda::Driver& driver_;
  std::vector<CUdeviceptr> memory_;
  void* host_ = nullptr;
  CUstream stream_ = nullptr;
  Entries entries_;
};

void measure(const cuda::Driver& driver, size_t count, size_t entry_bytes, size_t allocations) {
  Program program(driver, count, entry_bytes, allocations);
  const auto native =
      preload::real<CUresult(CUdeviceptr*, CUdeviceptr*, size_t*, size_t, CUmemcpyAttributes*,
                             size_t*, size_t, size_t*, CUstream)>(preload::k_cuMemcpyBatchAsync);
  std::vector<nanoseconds> natively, through_braid, own;
  for (int round = 0; round <= kRounds; ++round) {
    const nanoseconds one = program.call(native);
    for (Meter& meter : meters) meter = {.function = meter.function};
    const nanoseconds two = program.call(driver.copy_batch);
    nanoseconds inside{};
    for (const Meter& meter : meters) inside += meter.inside;
    if (round == 0) continue;  // relays wake up, and lists grow
    natively.push_back(one);
    through_braid.push_back(two);
    own.push_back(two - inside);
  }
  const double own_us = median_us(own);
  std::printf(
      "%zu entries of %zu bytes, %zu allocations: native %.1f us, braid %.1f us, of which "
      "outside the driver %.1f us (%.1f ns an entry)\n ",
      count, entry_bytes, allocations, median_us(natively), median_us(through_braid), own_us,
      own_us * 1e3 / static_cast<double>(count));
  for (const Meter& meter : meters)
    if (meter.calls != 0)
      std::printf(" %s %llu", meter.function, static_cast<unsigned long long>(meter.calls));
  std::printf("\n");
}

}  // namespace
}  // namespace braid::bench

int main(int argc, char** argv) {
  using namespace braid;
  const size_t count = argc > 1 ? std::stoul(argv[1]) : 2000;
  const size_t entry_bytes = argc > 2 ? std::stoul(argv[2]) : 64 << 10;
  setenv("BRAID_SERVER", BENCH_PROFILE, 0);
  setenv("BRAID_OPENING", "wait", 1);
  // By its path first: then it is the libcuda.so.1 that braid finds. What this table names is
  // braid's where braid stands in.
  const auto driver = cuda::open_driver(BENCH_EMULATOR);
  if (!driver.ok()) {
    std::fprintf(stderr, "batch_calls: %s\n", driver.status().message().c_str());
    return 1;
  }
  CUcontext context = nullptr;
  bench::must(driver.value().cuInit(0), "cuInit");
  bench::must(driver.value().cuDevicePrimaryCtxRetain(&context, 0), "cuDevicePrimaryCtxRetain");
  bench::must(driver.value().cuCtxSetCurrent(context), "cuCtxSetCurrent");
  for (const size_t allocations : {1, 64, 160})
    bench::measure(driver.value(), count, entry_bytes, allocations);
}
