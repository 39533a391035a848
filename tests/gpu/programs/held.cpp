// A stream is held, copies wait behind it, and somebody else calls the driver: whatever the native
// copies do meanwhile, copies that something carries must do too, before the hold is released.
//   held free|unregister|library|module SIZE_BYTES
//       Another thread frees memory, unpins some, launches a kernel that is not loaded yet, or
//       loads a module: calls that hold the context's lock while they wait for the held stream.
//       Copies of another stream and of another GPU go on, and end before the release.
//   held persistent SIZE_BYTES
//       A kernel fills every SM of the GPU until a copy has brought a word.
//   held successor SIZE_BYTES
//       The held stream is destroyed, and the next one gets its handle. That one's copies end.
//   held wait|spin SIZE_BYTES
//       200 copies behind a held stream, as nvbandwidth has them.
// A hang ends with exit code 9 and a name.
#include <functional>

#include "driver_entry.h"
#include "driver_program.h"
#include "gate.h"
#include "watch.h"

extern "C" const unsigned char braid_test_kernels[];

namespace {

using namespace program;

constexpr int kStreams = 2, kTrips = 2;  // with the streams beside them, fewer than copy queues
constexpr int kManyCopies = 200;
constexpr double kLimitMs = 30'000;

void step(const std::string& what, double limit_ms = kLimitMs) {
  Watch::of_process().begin(what, limit_ms);
}

void hold_by_value(CUstream stream, volatile uint32_t* word) {
  MUST(cuStreamWaitValue32(stream, reinterpret_cast<CUdeviceptr>(word), 1,
                           CU_STREAM_WAIT_VALUE_GEQ));
}

/// Waits without the driver's locks.
void wait_until_done(CUevent event, const std::string& what) {
  step(what);
  CUresult answer = cuEventQuery(event);
  for (; answer == CUDA_ERROR_NOT_READY; answer = cuEventQuery(event)) usleep(20);
  MUST(answer);
}

/// Copies there and back, and once more from where they came: each byte of the last landing has
/// made every trip.
class Trips {
 public:
  Trips(CUcontext context, size_t size_bytes, uint64_t seed)
      : context_(context), size_bytes_(size_bytes), pattern_(seed) {
    MUST(cuCtxSetCurrent(context));
    hosts_.push_back(pin(size_bytes, pattern_));
    for (int trip = 0; trip < kTrips; ++trip) {
      hosts_.push_back(pin(size_bytes));
      std::memset(hosts_.back(), 0, size_bytes);
      devices_.push_back(allocate(size_bytes));
    }
    stream_ = new_stream();
    end_ = new_event();
  }

  CUstream stream() const { return stream_; }
  CUevent end() const { return end_; }

  void enqueue(int rounds = 1) const {
    MUST(cuCtxSetCurrent(context_));
    for (int round = 0; round < rounds; ++round) {
      for (size_t trip = 0; trip < kTrips; ++trip) {
        to_device(devices_[trip], hosts_[trip], size_bytes_, stream_);
        to_host(hosts_[trip + 1], devices_[trip], size_bytes_, stream_);
      }
    }
    MUST(cuEventRecord(end_, stream_));
  }

  void check(const char* what) const {
    for (const unsigned char* host : hosts_) pattern_.check(host, size_bytes_, what);
  }

  void expect_nothing_yet(const char* what) const {
    require(cuEventQuery(end_) == CUDA_ERROR_NOT_READY, std::string(what) + ": the end has passed");
    for (int trip = 1; trip <= kTrips; ++trip)
      for (size_t at = 0; at < size_bytes_; at += 4096)
        require(hosts_[static_cast<size_t>(trip)][at] == 0,
                std::string(what) + ": bytes have passed");
  }

 private:
  CUcontext context_;
  size_t size_bytes_;
  Pattern pattern_;
  std::vector<unsigned char*> hosts_;
  std::vector<CUdeviceptr> devices_;
  CUstream stream_ = nullptr;
  CUevent end_ = nullptr;
};

/// What the other thread will do, with everything prepared.
std::function<void()> meddling(const std::string& how, size_t size_bytes) {
  if (how == "free") {
    const CUdeviceptr memory = allocate(size_bytes);
    return [=] { MUST(cuMemFree(memory)); };
  }
  if (how == "unregister") {
    void* memory = nullptr;
    require(posix_memalign(&memory, 4096, size_bytes) == 0, "posix_memalign");
    MUST(cuMemHostRegister(memory, size_bytes, 0));
    return [=] { MUST(cuMemHostUnregister(memory)); };
  }
  if (how == "module") {
    return [] {
      CUmodule module = nullptr;
      MUST(cuModuleLoadData(&module, braid_test_kernels));
    };
  }
  require(how == "library", "held knows no " + how);
  CUlibrary library = nullptr;
  MUST(DRIVER(cuLibraryLoadData)(&library, braid_test_kernels, nullptr, nullptr, 0, nullptr,
                                 nullptr, 0));
  CUdeviceptr sum = allocate(sizeof(uint64_t)), words = allocate(sizeof(uint64_t));
  const CUstream stream = new_stream();
  return [=]() mutable {
    CUkernel kernel = nullptr;
    unsigned long long count = 1;
    void* arguments[] = {&words, &count, &sum};
    MUST(DRIVER(cuLibraryGetKernel)(&kernel, library, "sum_words"));
    MUST(DRIVER(cuLaunchKernel)(reinterpret_cast<CUfunction>(kernel), 1, 1, 1, 1, 1, 1, 0, stream,
                                arguments, nullptr));
  };
}

void beside(const std::string& how, const std::vector<CUcontext>& contexts, size_t size_bytes) {
  step("preparing", 120'000);
  require(contexts.size() > 1, "two GPUs are needed");
  volatile uint32_t* gate = new_gate();
  std::vector<Trips> held;
  for (uint64_t seed = 1; seed <= kStreams; ++seed)
    held.emplace_back(contexts[0], size_bytes, seed);
  const Trips same(contexts[0], size_bytes, 10), other(contexts[1], size_bytes, 11);
  MUST(cuCtxSetCurrent(contexts[0]));
  const auto meddle = meddling(how, size_bytes);
  const CUevent is_released = new_event();
  MUST(cuCtxSynchronize());

  step("enqueueing behind the hold");
  hold_by_value(held[0].stream(), gate);
  MUST(cuEventRecord(is_released, held[0].stream()));
  for (const Trips& trips : held) {
    if (&trips != &held[0]) MUST(cuStreamWaitEvent(trips.stream(), is_released, 0));
    trips.enqueue();
  }
  step("enqueueing beside the hold");
  same.enqueue(kTrips * 2);
  std::thread meddler([&] {
    MUST(cuCtxSetCurrent(contexts[0]));
    meddle();
  });
  sleep_ms(100);
  step("enqueueing on another GPU, with a thread in " + how);
  other.enqueue(kTrips * 2);
  wait_until_done(other.end(), "copies to another GPU, with a thread in " + how);
  wait_until_done(same.end(), "copies to the same GPU, with a thread in " + how);
  for (const Trips& trips : held) trips.expect_nothing_yet("behind the hold");

  step("the end of the hold");
  store(gate, 1);
  meddler.join();
  for (const Trips& trips : held) wait_until_done(trips.end(), "copies that were held");
  for (const Trips& trips : held) trips.check("copies that were held");
  same.check("copies to the same GPU");
  other.check("copies to another GPU");
}

// Kernels wait on every SM for what the copy brings last.
void persistent(size_t size_bytes) {
  step("preparing", 120'000);
  prepare_gate();
  size_bytes -= size_bytes % sizeof(uint32_t);
  const Pattern pattern(20);
  unsigned char* source = pin(size_bytes, pattern);
  const CUdeviceptr device = allocate(size_bytes);
  const CUstream stream = new_stream(), full = new_stream();
  const CUevent end = new_event();
  MUST(cuMemsetD8(device, 0, size_bytes));
  MUST(cuCtxSynchronize());
  hold_every_processor(full, reinterpret_cast<const volatile uint32_t*>(device + size_bytes - 4));
  MUST(cuEventRecord(end, full));
  sleep_ms(100);
  require(cuEventQuery(end) == CUDA_ERROR_NOT_READY, "the kernel does not wait");
  step("enqueueing beside a kernel that fills the GPU");
  to_device(device, source, size_bytes, stream);
  wait_until_done(end, "a kernel that waits for a copy on every SM");
  MUST(cuStreamSynchronize(stream));
  check_device(device, size_bytes, pattern, "the copy that a kernel waited for");
}

void successor(CUcontext context, size_t size_bytes) {
  step("preparing", 120'000);
  volatile uint32_t* gate = new_gate();
  const Trips held(context, size_bytes, 40);
  MUST(cuCtxSynchronize());
  step("enqueueing behind the hold");
  hold_by_value(held.stream(), gate);
  held.enqueue();
  MUST(cuStreamDestroy(held.stream()));
  const Trips next(context, size_bytes, 41);
  step("enqueueing on the next stream");
  next.enqueue();
  wait_until_done(next.end(), "copies of the next stream");
  held.expect_nothing_yet("behind the hold");
  store(gate, 1);
  wait_until_done(held.end(), "copies of a stream that was destroyed");
  held.check("copies of a stream that was destroyed");
  next.check("copies of the next stream");
}

void many(bool is_kernel, size_t size_bytes) {
  step("preparing", 120'000);
  if (is_kernel) prepare_gate();
  volatile uint32_t* gate = new_gate();
  const Pattern pattern(30);
  unsigned char* source = pin(size_bytes, pattern);
  unsigned char* landing = pin(size_bytes);
  const CUdeviceptr device = allocate(size_bytes);
  const CUstream stream = new_stream();
  const CUevent end = new_event();
  std::memset(landing, 0, size_bytes);
  step("enqueueing 200 copies behind a held stream");
  if (is_kernel)
    hold(stream, gate);
  else
    hold_by_value(stream, gate);
  for (int copy = 0; copy < kManyCopies; copy += 2) {
    to_device(device, source, size_bytes, stream);
    to_host(landing, device, size_bytes, stream);
  }
  MUST(cuEventRecord(end, stream));
  sleep_ms(50);
  require(cuEventQuery(end) == CUDA_ERROR_NOT_READY, "copies have passed a closed gate");
  store(gate, 1);
  wait_until_done(end, "200 copies behind a stream that was held");
  pattern.check(landing, size_bytes, "200 copies");
}

}  // namespace

int main(int argc, char** argv) {
  require(argc == 3,
          "usage: held free|unregister|library|module|persistent|successor|wait|spin SIZE_BYTES");
  const std::string how = argv[1];
  const size_t size_bytes = size_argument(argc - 1, argv + 1);
  step("the beginning", 120'000);
  const std::vector<CUcontext> contexts = use_gpus(2);
  if (how == "persistent")
    persistent(size_bytes);
  else if (how == "successor")
    successor(contexts[0], size_bytes);
  else if (how == "wait" || how == "spin")
    many(how == "spin", size_bytes);
  else
    beside(how, contexts, size_bytes);
  step("the end");
  print_counts();
  return 0;
}
