// designs [SIZE_MIB [TURNS]]: the three designs for a contiguous copy, without a scheduler on the
// CPU: kernels that pull slices, a plan of copies that is enqueued whole, and a plan for most of
// the bytes beside kernels that pull the rest (docs/paper.md). On an idle server; while the relay's
// link carries copies of its own GPU; and when these begin half-way. Needs two GPUs. All designs
// take turns within one run. Medians of whole copies, lowest to highest; every byte is verified.
#include <braid/copy.h>
#include <cuda.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

namespace {

constexpr size_t kPieceBytes = size_t{1} << 20;
constexpr size_t kTrafficBytes = size_t{64} << 20;
constexpr int kTrafficCopies = 24;  // longer than any copy that is measured

[[noreturn]] void die(const std::string& what) {
  std::fprintf(stderr, "designs: %s\n", what.c_str());
  std::exit(1);
}

void must(CUresult result, const char* call) {
  if (result != CUDA_SUCCESS) die(std::string(call) + ": error " + std::to_string(result));
}
#define MUST(call) must(call, #call)

enum class Traffic { kNone, kFromTheBeginning, kFromHalfWay };
constexpr Traffic kTraffics[] = {Traffic::kNone, Traffic::kFromTheBeginning, Traffic::kFromHalfWay};
constexpr const char* kTrafficNames[] = {"none", "all the time", "from half-way"};

struct Design {
  const char* name;
  bool is_native;
  int planned_percent;  // the rest goes by kernels
};
constexpr Design kDesigns[] = {{"native", true, 0},      {"kernels", false, 0},
                               {"plan", false, 100},     {"plan 95 %", false, 95},
                               {"plan 90 %", false, 90}, {"plan 75 %", false, 75},
                               {"plan 50 %", false, 50}};

// What GPU 1's own program copies meanwhile.
class OtherProgram {
 public:
  explicit OtherProgram(CUcontext context) : context_(context) {
    MUST(cuCtxPushCurrent(context_));
    MUST(cuMemHostAlloc(&host_, kTrafficBytes, CU_MEMHOSTALLOC_PORTABLE));
    MUST(cuMemAlloc(&device_, kTrafficBytes));
    MUST(cuStreamCreate(&stream_, CU_STREAM_NON_BLOCKING));
    MUST(cuCtxPopCurrent(nullptr));
  }
  void begin(bool to_device) {
    MUST(cuCtxPushCurrent(context_));
    for (int i = 0; i < kTrafficCopies; ++i)
      MUST(to_device ? cuMemcpyHtoDAsync(device_, host_, kTrafficBytes, stream_)
                     : cuMemcpyDtoHAsync(host_, device_, kTrafficBytes, stream_));
    MUST(cuCtxPopCurrent(nullptr));
  }
  void wait() { MUST(cuStreamSynchronize(stream_)); }

 private:
  CUcontext context_;
  void* host_ = nullptr;
  CUdeviceptr device_ = 0;
  CUstream stream_ = nullptr;
};

class Measured {
 public:
  explicit Measured(size_t size_bytes) : size_bytes_(size_bytes) {
    for (char** buffer : {&sent_[0], &sent_[1], &received_}) {
      void* memory = nullptr;
      MUST(cuMemHostAlloc(&memory, size_bytes, CU_MEMHOSTALLOC_PORTABLE));
      *buffer = static_cast<char*>(memory);
    }
    for (size_t i = 0; i < size_bytes / sizeof(uint64_t); ++i) {
      const uint64_t word = i * 0x9E3779B97F4A7C15;
      std::memcpy(sent_[0] + i * sizeof word, &word, sizeof word);
      const uint64_t other = ~word;
      std::memcpy(sent_[1] + i * sizeof word, &other, sizeof other);
    }
    MUST(cuMemAlloc(&device_, size_bytes));
    for (CUstream* stream : {&stream_, &second_})
      MUST(cuStreamCreate(stream, CU_STREAM_NON_BLOCKING));
    for (CUevent* event : {&begin_, &end_}) MUST(cuEventCreate(event, CU_EVENT_DEFAULT));
    for (CUevent* event : {&forked_, &joined_}) MUST(cuEventCreate(event, CU_EVENT_DISABLE_TIMING));
  }

  double gbps(braid::Engine& engine, const Design& design, bool to_device, Traffic traffic,
              OtherProgram& other) {
    set_ = 1 - set_;
    if (!to_device) {
      MUST(cuMemcpyHtoDAsync(device_, sent_[set_], size_bytes_, stream_));
      MUST(cuMemsetD8Async(reinterpret_cast<CUdeviceptr>(received_), 0, size_bytes_, stream_));
    }
    MUST(cuStreamSynchronize(stream_));
    if (traffic == Traffic::kFromTheBeginning) other.begin(to_device);
    MUST(cuEventRecord(begin_, stream_));
    enqueue(engine, design, to_device);
    MUST(cuEventRecord(end_, stream_));
    if (traffic == Traffic::kFromHalfWay) {
      const double half_us =
          static_cast<double>(size_bytes_) / 2 / (design.is_native ? 55e3 : 107e3);
      std::this_thread::sleep_for(std::chrono::duration<double, std::micro>(half_us));
      other.begin(to_device);
    }
    MUST(cuStreamSynchronize(stream_));
    float elapsed_ms = 0;
    MUST(cuEventElapsedTime(&elapsed_ms, begin_, end_));
    other.wait();
    verify(to_device);
    return static_cast<double>(size_bytes_) / (elapsed_ms * 1e6);
  }

 private:
  void enqueue(braid::Engine& engine, const Design& design, bool to_device) {
    char* host = to_device ? sent_[set_] : received_;
    if (design.is_native) {
      MUST(to_device ? cuMemcpyHtoDAsync(device_, host, size_bytes_, stream_)
                     : cuMemcpyDtoHAsync(host, device_, size_bytes_, stream_));
      return;
    }
    const size_t planned_bytes =
        size_bytes_ / 100 * static_cast<size_t>(design.planned_percent) / kPieceBytes * kPieceBytes;
    const size_t by_plan = design.planned_percent == 100 ? size_bytes_ : planned_bytes;
    MUST(cuEventRecord(forked_, stream_));
    MUST(cuStreamWaitEvent(second_, forked_, 0));
    if (by_plan != 0) {
      void* device = braid::at(device_);
      const auto copied = to_device ? engine.copy(device, host, by_plan, stream_)
                                    : engine.copy(host, device, by_plan, stream_);
      if (!copied.ok() || !copied.value().is_accelerated()) die("the plan was not carried");
    }
    if (by_plan != size_bytes_) pull(engine, host, by_plan, to_device);
    MUST(cuEventRecord(joined_, second_));
    MUST(cuStreamWaitEvent(stream_, joined_, 0));
  }

  // As a batch, which goes by kernels; from the end on, or its pieces would be one contiguous copy.
  void pull(braid::Engine& engine, char* host, size_t from_bytes, bool to_device) {
    std::vector<void*> destinations;
    std::vector<const void*> sources;
    for (size_t at = size_bytes_; at > from_bytes; at -= kPieceBytes) {
      void* device = braid::at(device_ + at - kPieceBytes);
      void* on_host = host + at - kPieceBytes;
      destinations.push_back(to_device ? device : on_host);
      sources.push_back(to_device ? on_host : device);
    }
    const std::vector<size_t> sizes(destinations.size(), kPieceBytes);
    const auto copied = engine.copy_batch(destinations, sources, sizes, second_);
    if (!copied.ok() || !copied.value().is_accelerated())
      die(std::string("kernels did not carry the rest: ") +
          (copied.ok() ? copied.value().reason : copied.status().message()));
  }

  void verify(bool to_device) {
    if (to_device) {
      MUST(cuMemsetD8Async(reinterpret_cast<CUdeviceptr>(received_), 0, size_bytes_, stream_));
      MUST(cuMemcpyDtoHAsync(received_, device_, size_bytes_, stream_));
      MUST(cuStreamSynchronize(stream_));
    }
    if (std::memcmp(received_, sent_[set_], size_bytes_) != 0) die("wrong bytes");
  }

  size_t size_bytes_;
  char* sent_[2] = {};
  char* received_ = nullptr;
  int set_ = 0;
  CUdeviceptr device_ = 0;
  CUstream stream_ = nullptr;
  CUstream second_ = nullptr;
  CUevent begin_ = nullptr, end_ = nullptr, forked_ = nullptr, joined_ = nullptr;
};

void print(const char* direction, Traffic traffic, const Design& design,
           std::vector<double> values) {
  std::sort(values.begin(), values.end());
  std::printf("%-4s %-14s %-10s %6.1f (%.1f-%.1f)\n", direction,
              kTrafficNames[static_cast<size_t>(traffic)], design.name, values[values.size() / 2],
              values.front(), values.back());
  std::fflush(stdout);
}

}  // namespace

int main(int argc, char** argv) {
  const size_t size_bytes = static_cast<size_t>(argc > 1 ? std::atoi(argv[1]) : 256) << 20;
  const int turns = argc > 2 ? std::atoi(argv[2]) : 7;
  if (size_bytes == 0 || turns < 1) die("designs [SIZE_MIB [TURNS]]");
  MUST(cuInit(0));
  CUcontext contexts[2] = {};
  for (int gpu : {1, 0}) {
    CUdevice device = 0;
    MUST(cuDeviceGet(&device, gpu));
    MUST(cuDevicePrimaryCtxRetain(&contexts[gpu], device));
    MUST(cuCtxSetCurrent(contexts[gpu]));
  }
  const braid_option carry_all[] = {{"BRAID_THRESHOLD", "1M"}};  // the rest may be small
  auto opened = braid::Engine::open(carry_all);
  if (!opened.ok()) die(opened.status().message());
  braid::Engine engine = std::move(opened).value();
  if (const auto ready = engine.prepare(); !ready.ok()) die(ready.message());
  OtherProgram other(contexts[1]);
  Measured measured(size_bytes);
  std::printf("%zu MiB, %d turns, GB/s\n", size_bytes >> 20, turns);
  std::printf("%-4s %-14s %-10s\n", "", "GPU 1's link", "design");
  for (const bool to_device : {true, false})
    for (const Traffic traffic : kTraffics) {
      std::vector<double> values[std::size(kDesigns)];
      for (int turn = -1; turn < turns; ++turn)
        for (size_t i = 0; i < std::size(kDesigns); ++i) {
          const double gbps = measured.gbps(engine, kDesigns[i], to_device, traffic, other);
          if (turn >= 0) values[i].push_back(gbps);
        }
      for (size_t i = 0; i < std::size(kDesigns); ++i)
        print(to_device ? "h2d" : "d2h", traffic, kDesigns[i], values[i]);
    }
  return 0;
}
