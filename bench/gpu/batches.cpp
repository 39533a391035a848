// batches [ENTRIES [ENTRY_BYTES [STREAMS]]]: what a call of cuMemcpyBatchAsync costs the CPU, and
// how fast its bytes are: one batch alone, and as many at once as there are streams. Entries lie
// apart at both ends. Medians (lowest-highest) of whole rounds; every byte is verified. Knows
// nothing of braid: run it natively and under `braid run`.
#include <cuda.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

namespace {

constexpr int kRounds = 9;
constexpr uint64_t kPrime = 0x9E3779B97F4A7C15;

void must(CUresult result, const char* call) {
  if (result == CUDA_SUCCESS) return;
  std::fprintf(stderr, "batches: %s: error %d\n", call, static_cast<int>(result));
  std::exit(1);
}
#define MUST(call) must(call, #call)

struct Batch {
  std::vector<CUdeviceptr> to, from;
  std::vector<size_t> sizes;
  CUstream stream = nullptr;
};

double now_us() {
  using std::chrono::steady_clock;
  return std::chrono::duration<double, std::micro>(steady_clock::now().time_since_epoch()).count();
}

void print(const char* what, const char* unit, std::vector<double> values) {
  std::sort(values.begin(), values.end());
  std::printf("  %s %.1f (%.1f-%.1f) %s", what, values[values.size() / 2], values.front(),
              values.back(), unit);
}

class Program {
 public:
  Program(size_t entries, size_t entry_bytes, size_t streams)
      : entries_(entries), entry_bytes_(entry_bytes), streams_(streams) {
    for (char** host : {&sent_, &received_}) {
      void* memory = nullptr;
      MUST(cuMemHostAlloc(&memory, room(), CU_MEMHOSTALLOC_PORTABLE));
      *host = static_cast<char*>(memory);
    }
    MUST(cuMemAlloc(&device_, room()));
    for (CUstream& stream : streams_) MUST(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  }

  void measure(bool to_device, size_t at_once) {
    std::vector<double> call_us, gbps;
    for (int round = 0; round <= kRounds; ++round) {
      prepare(to_device, static_cast<uint64_t>(round) + 1);
      std::vector<Batch> batches;
      for (size_t i = 0; i < at_once; ++i) batches.push_back(list(to_device, i));
      const double begin_us = now_us();
      std::vector<double> calls;
      for (Batch& batch : batches) calls.push_back(issue(batch));
      for (const Batch& batch : batches) MUST(cuStreamSynchronize(batch.stream));
      const double all_us = now_us() - begin_us;
      verify(to_device, at_once);
      if (round == 0) continue;
      call_us.insert(call_us.end(), calls.begin(), calls.end());
      gbps.push_back(static_cast<double>(at_once * entries_ * entry_bytes_) / all_us / 1e3);
    }
    std::printf("%s %zu at once:", to_device ? "h2d" : "d2h", at_once);
    print("a call", "us", call_us);
    print(" all", "GB/s\n", gbps);
    std::fflush(stdout);
  }

 private:
  // Twice as much as there are bytes: each entry has a gap behind it.
  size_t room() const { return 2 * streams_.size() * entries_ * entry_bytes_; }
  size_t place(size_t batch, size_t entry) const {
    return 2 * (batch * entries_ + entry) * entry_bytes_;
  }

  Batch list(bool to_device, size_t number) const {
    Batch batch;
    batch.stream = streams_[number];
    char* host = to_device ? sent_ : received_;
    for (size_t i = 0; i < entries_; ++i) {
      const auto on_host = reinterpret_cast<CUdeviceptr>(host + place(number, i));
      const CUdeviceptr on_device = device_ + place(number, entries_ - 1 - i);
      batch.to.push_back(to_device ? on_device : on_host);
      batch.from.push_back(to_device ? on_host : on_device);
      batch.sizes.push_back(entry_bytes_);
    }
    return batch;
  }

  static double issue(Batch& batch) {
    CUmemcpyAttributes attributes{};
    attributes.srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_STREAM;
    size_t first = 0;
    const double begin_us = now_us();
#if CUDA_VERSION >= 13000
    MUST(cuMemcpyBatchAsync(batch.to.data(), batch.from.data(), batch.sizes.data(),
                            batch.sizes.size(), &attributes, &first, 1, batch.stream));
#else
    size_t failed = 0;
    MUST(cuMemcpyBatchAsync(batch.to.data(), batch.from.data(), batch.sizes.data(),
                            batch.sizes.size(), &attributes, &first, 1, &failed, batch.stream));
#endif
    return now_us() - begin_us;
  }

  void prepare(bool to_device, uint64_t seed) {
    for (size_t at = 0; at < room(); at += sizeof(uint64_t)) {
      const uint64_t word = (at + seed) * kPrime;
      std::memcpy(sent_ + at, &word, sizeof word);
    }
    std::memset(received_, 0, room());
    if (!to_device) MUST(cuMemcpyHtoD(device_, sent_, room()));
    MUST(cuCtxSynchronize());
  }

  void verify(bool to_device, size_t at_once) {
    if (to_device) MUST(cuMemcpyDtoH(received_, device_, room()));
    for (size_t batch = 0; batch < at_once; ++batch)
      for (size_t i = 0; i < entries_; ++i)
        if (std::memcmp(received_ + place(batch, i), sent_ + place(batch, entries_ - 1 - i),
                        entry_bytes_) != 0) {
          std::fprintf(stderr, "batches: wrong bytes\n");
          std::exit(1);
        }
  }

  size_t entries_, entry_bytes_;
  std::vector<CUstream> streams_;
  char* sent_ = nullptr;
  char* received_ = nullptr;
  CUdeviceptr device_ = 0;
};

}  // namespace

int main(int argc, char** argv) {
  const auto word = [&](int at, size_t usual) {
    return argc > at ? std::strtoull(argv[at], nullptr, 10) : usual;
  };
  const size_t entries = word(1, 2000), entry_bytes = word(2, 16 << 10), streams = word(3, 8);
  CUdevice device = 0;
  CUcontext context = nullptr;
  MUST(cuInit(0));
  MUST(cuDeviceGet(&device, 0));
  MUST(cuDevicePrimaryCtxRetain(&context, device));
  MUST(cuCtxSetCurrent(context));
  Program program(entries, entry_bytes, streams);
  std::printf("%zu entries of %zu bytes\n", entries, entry_bytes);
  for (const bool to_device : {true, false})
    for (const size_t at_once : {size_t{1}, streams}) program.measure(to_device, at_once);
  return 0;
}
