// Programs in which something ends while other things go on: endings SCENARIO. They look at every
// byte that they copy.
#include <pthread.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <cstring>
#include <map>
#include <mutex>
#include <string>
#include <thread>

#include "client.h"
#include "support/asleep.h"

namespace {

using namespace client;

constexpr size_t kEntries = 32, kEntryBytes = 256 << 10;
constexpr size_t kSizeBytes = kEntries * kEntryBytes;

// A batch to the current GPU, back to front, in a stream of its own.
void copy_batch_and_look(uint64_t seed) {
  uint8_t* host = pin(kSizeBytes);
  Random(seed).fill(host, kSizeBytes);
  const CUdeviceptr device = allocate(kSizeBytes);
  CUstream stream = nullptr;
  call("cuStreamCreate", &stream, static_cast<unsigned>(CU_STREAM_NON_BLOCKING));
  CUdeviceptr to[kEntries], from[kEntries];
  size_t sizes[kEntries];
  for (size_t entry = 0; entry < kEntries; ++entry) {
    const size_t at = (kEntries - 1 - entry) * kEntryBytes;
    to[entry] = device + at;
    from[entry] = reinterpret_cast<CUdeviceptr>(host) + at;
    sizes[entry] = kEntryBytes;
  }
  CUmemcpyAttributes attributes{};
  attributes.srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_STREAM;
  size_t first = 0, failed = 0;
  call("cuMemcpyBatchAsync", &to[0], &from[0], &sizes[0], kEntries, &attributes, &first, size_t{1},
       &failed, stream);
  call("cuStreamSynchronize", stream);
  std::vector<uint8_t> got(kSizeBytes);
  read_in_pieces(got.data(), device, kSizeBytes);
  require(std::memcmp(got.data(), host, kSizeBytes) == 0, "wrong bytes");
}

// An object of the thread's that is made before its first copy, and so ends after whatever braid
// keeps for the thread. By then others use the memory that has been freed.
struct CopiesAtItsEnd {
  bool does = false;
  ~CopiesAtItsEnd() {
    if (!does) return;
    constexpr size_t kBlocks = 256, kLargestBytes = 2048;
    std::vector<std::vector<uint8_t>> blocks;
    for (size_t block = 0; block < kBlocks; ++block)
      blocks.emplace_back(kLargestBytes * (block + 1) / kBlocks, uint8_t{0x5A});
    copy_batch_and_look(2);
    for (const auto& block : blocks)
      require(std::all_of(block.begin(), block.end(), [](uint8_t byte) { return byte == 0x5A; }),
              "memory of the program's is overwritten");
  }
};

int a_thread() {
  use_gpu(0);
  copy_batch_and_look(0);
  std::thread([] {
    thread_local CopiesAtItsEnd last;
    last.does = true;
    use_gpu(0);
    copy_batch_and_look(1);
  }).join();
  return 0;
}

// Ends the program, and says why, unless it is gone in time.
class Watchdog {
 public:
  explicit Watchdog(const char* what)
      : thread_([this, what] {
          std::unique_lock lock(mutex_);
          require(ended_.wait_for(lock, std::chrono::seconds(60), [this] { return has_ended_; }),
                  what);
        }) {}
  ~Watchdog() {
    {
      const std::lock_guard lock(mutex_);
      has_ended_ = true;
    }
    ended_.notify_one();
    thread_.join();
  }
  Watchdog(const Watchdog&) = delete;
  Watchdog& operator=(const Watchdog&) = delete;

 private:
  std::mutex mutex_;
  std::condition_variable ended_;
  bool has_ended_ = false;
  std::thread thread_;
};

// A word of GPU 1's host memory that streams of GPU 0 wait for.
uint32_t* new_word() {
  use_gpu(1);
  auto* word = reinterpret_cast<uint32_t*>(pin(sizeof(uint32_t)));
  *word = 0;
  use_gpu(0);
  return word;
}

CUstream new_stream_behind(const uint32_t* word) {
  CUstream held = nullptr;
  call("cuStreamCreate", &held, static_cast<unsigned>(CU_STREAM_NON_BLOCKING));
  call("cuStreamWaitValue32_v2", held, reinterpret_cast<CUdeviceptr>(word), 1u,
       static_cast<unsigned>(CU_STREAM_WAIT_VALUE_GEQ));
  return held;
}

// The body in a thread that uses GPU 0, once it has come to where it waits.
template <typename Body>
std::thread waiting_thread(const Body& body) {
  CUcontext context = nullptr;
  call("cuCtxGetCurrent", &context);
  return braid::test::waiting_thread([context, body] {
    call("cuCtxSetCurrent", context);
    body();
  });
}

// The context of GPU 0 ends in another thread, while a copy there is held, and a thread that waits
// for the context's lock is about to make another. What this thread does with GPU 1 must not wait
// for any of them.
int a_context() {
  uint32_t* word = new_word();
  copy_batch_and_look(3);
  const CUstream held = new_stream_behind(word);
  CUstream other = nullptr;
  call("cuStreamCreate", &other, static_cast<unsigned>(CU_STREAM_NON_BLOCKING));
  use_gpu(1);
  const uint8_t* host = pin(kSizeBytes);
  use_gpu(0);
  const CUdeviceptr device = allocate(kSizeBytes), unused = allocate(kSizeBytes);
  const auto copy = [=](CUstream stream) {
    return get<CUresult(CUdeviceptr, const void*, size_t, CUstream)>("cuMemcpyHtoDAsync_v2")(
        device, host, kSizeBytes, stream);
  };
  check(copy(held), "a copy that is held");
  // What these are told depends on who comes first: the context ends.
  std::thread freeing = waiting_thread([=] { get<CUresult(CUdeviceptr)>("cuMemFree_v2")(unused); });
  std::thread copying = waiting_thread([=] { copy(other); });
  std::thread ending = waiting_thread([] { call("cuDevicePrimaryCtxReset_v2", 0); });
  {
    const Watchdog watchdog("it waits for a context of GPU 0");
    use_gpu(1);
    unsigned flags = 0;
    int is_active = 0;
    call("cuDevicePrimaryCtxGetState", 1, &flags, &is_active);
    copy_batch_and_look(4);
    use_gpu(1);
    call("cuDevicePrimaryCtxRelease_v2", 1);
  }
  std::atomic_ref(*word).store(1);
  for (std::thread* thread : {&freeing, &copying, &ending}) thread->join();
  use_gpu(0);
  copy_batch_and_look(5);
  return 0;
}

// Another thread gives up the last hold on GPU 0's context, and waits for a copy there. This one
// retains the context meanwhile, so that it lives on, and holds a stream there: the other one must
// not wait for that.
int a_hold() {
  uint32_t *first = new_word(), *second = new_word();
  copy_batch_and_look(6);
  use_gpu(1);
  const uint8_t* host = pin(kSizeBytes);
  use_gpu(0);
  for (int hold = 0; hold < 2; ++hold) call("cuDevicePrimaryCtxRelease_v2", 0);  // of three
  call("cuMemcpyHtoDAsync_v2", allocate(kSizeBytes), static_cast<const void*>(host), kSizeBytes,
       new_stream_behind(first));
  std::thread releasing = waiting_thread([] { call("cuDevicePrimaryCtxRelease_v2", 0); });
  use_gpu(0);
  new_stream_behind(second);
  {
    const Watchdog watchdog("it waits for a stream of who retains the context");
    std::atomic_ref(*first).store(1);
    releasing.join();
    CUcontext again = nullptr;
    call("cuDevicePrimaryCtxRetain", &again, 0);
  }
  std::atomic_ref(*second).store(1);
  use_gpu(0);
  copy_batch_and_look(7);
  return 0;
}

// The driver refuses to destroy a primary context, and detaching it changes nothing, whatever its
// streams wait for.
int a_refusal() {
  uint32_t* word = new_word();
  copy_batch_and_look(10);
  const CUstream held = new_stream_behind(word);
  CUcontext context = nullptr;
  call("cuCtxGetCurrent", &context);
  {
    const Watchdog watchdog("it waits for the stream");
    require(get<CUresult(CUcontext)>("cuCtxDestroy_v2")(context) == CUDA_ERROR_INVALID_CONTEXT,
            "it was destroyed");
    call("cuCtxDetach", context);
  }
  std::atomic_ref(*word).store(1);
  call("cuStreamSynchronize", held);
  copy_batch_and_look(11);
  return 0;
}

// So large that braid would stage it.
void copy_pageable_and_look(uint64_t seed) {
  std::vector<uint8_t> host(kSizeBytes), got(kSizeBytes);
  Random(seed).fill(host.data(), kSizeBytes);
  const CUdeviceptr device = allocate(kSizeBytes);
  call("cuMemcpyHtoD_v2", device, static_cast<const void*>(host.data()), kSizeBytes);
  read_in_pieces(got.data(), device, kSizeBytes);
  require(got == host, "wrong bytes");
}

// One of two users of a context lets it go, while a stream there is held that it will release next.
int a_detachment() {
  uint32_t* word = new_word();
  CUcontext made = nullptr, attached = nullptr;
  call("cuCtxCreate_v2", &made, static_cast<unsigned>(CU_CTX_SCHED_AUTO), CUdevice{0});
  call("cuCtxAttach", &attached, 0u);
  copy_pageable_and_look(8);
  const CUstream held = new_stream_behind(word);
  {
    const Watchdog watchdog("it waits for the stream");
    call("cuCtxDetach", made);
  }
  std::atomic_ref(*word).store(1);
  call("cuStreamSynchronize", held);
  copy_pageable_and_look(9);
  call("cuCtxDestroy_v2", made);
  return 0;
}

size_t resident_bytes() {
  size_t all = 0, resident = 0;
  FILE* about = std::fopen("/proc/self/statm", "r");
  require(about != nullptr && std::fscanf(about, "%zu %zu", &all, &resident) == 2, "no statm");
  std::fclose(about);
  return resident * 4096;
}

// What braid keeps for the copies of a context goes when the context goes.
int many_contexts() {
  use_gpu(0);
  size_t before = 0;
  for (uint64_t round = 0; round < 9; ++round) {
    CUcontext made = nullptr;
    call("cuCtxCreate_v2", &made, static_cast<unsigned>(CU_CTX_SCHED_AUTO), CUdevice{0});
    copy_pageable_and_look(round);
    call("cuCtxDestroy_v2", made);
    if (round == 0) before = resident_bytes();
  }
  const size_t after = resident_bytes();
  std::fprintf(stdout, "%zu MiB more\n", (after - std::min(after, before)) >> 20);
  require(after < before + 4 * kSizeBytes, "memory of contexts that have gone is left");
  return 0;
}

// A thread that copies is cancelled at any time, and ends between two copies.
int a_cancellation() {
  use_gpu(0);
  const CUdeviceptr device = allocate(kSizeBytes);
  std::vector<uint8_t> host(kSizeBytes), got(kSizeBytes);
  for (int round = 0; round < 12; ++round) {
    Random(static_cast<uint64_t>(round)).fill(host.data(), kSizeBytes);
    std::atomic<bool> has_copied{false};
    std::thread thread([&] {
      use_gpu(0);
      for (;; pthread_testcancel()) {
        call("cuMemcpyHtoD_v2", device, static_cast<const void*>(host.data()), kSizeBytes);
        has_copied = true;
      }
    });
    while (!has_copied) std::this_thread::yield();
    std::this_thread::sleep_for(std::chrono::milliseconds(3 * round));
    pthread_cancel(thread.native_handle());
    thread.join();
    read_in_pieces(got.data(), device, kSizeBytes);
    require(got == host, "wrong bytes");
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  const std::map<std::string, int (*)()> scenarios = {
      {"a_thread", a_thread},
      {"a_context", a_context},
      {"a_hold", a_hold},
      {"a_refusal", a_refusal},
      {"a_detachment", a_detachment},
      {"many_contexts", many_contexts},
      {"a_cancellation", a_cancellation},
  };
  require(use_lookup("dlsym"), "no driver");
  const auto scenario = scenarios.find(argc > 1 ? argv[1] : "");
  require(scenario != scenarios.end(), "no such scenario");
  return scenario->second();
}
