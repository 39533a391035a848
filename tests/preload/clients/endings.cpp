// Programs in which something ends while other things go on: endings SCENARIO. They look at every
// byte that they copy.
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <map>
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

// The context of GPU 0 ends in another thread, while a copy there is held by this one. What this
// thread does with GPU 1 must not wait for that.
int a_context() {
  use_gpu(1);
  auto* word = reinterpret_cast<uint32_t*>(pin(sizeof(uint32_t)));
  *word = 0;
  use_gpu(0);
  copy_batch_and_look(3);
  CUstream held = nullptr;
  call("cuStreamCreate", &held, static_cast<unsigned>(CU_STREAM_NON_BLOCKING));
  call("cuStreamWaitValue32_v2", held, reinterpret_cast<CUdeviceptr>(word), 1u,
       static_cast<unsigned>(CU_STREAM_WAIT_VALUE_GEQ));
  use_gpu(1);
  const uint8_t* host = pin(kSizeBytes);
  use_gpu(0);
  call("cuMemcpyHtoDAsync_v2", allocate(kSizeBytes), static_cast<const void*>(host), kSizeBytes,
       held);
  std::atomic<pid_t> number = 0;
  std::thread ending([&] {
    number = gettid();
    call("cuDevicePrimaryCtxReset_v2", 0);
  });
  while (number == 0) std::this_thread::yield();
  std::this_thread::sleep_for(std::chrono::milliseconds(200));  // until it waits
  braid::test::wait_until_asleep(number);
  alarm(60);  // whoever waits for a context of GPU 0 waits for ever
  use_gpu(1);
  unsigned flags = 0;
  int is_active = 0;
  call("cuDevicePrimaryCtxGetState", 1, &flags, &is_active);
  copy_batch_and_look(4);
  use_gpu(1);
  call("cuDevicePrimaryCtxRelease_v2", 1);
  alarm(0);
  std::atomic_ref(*word).store(1);
  ending.join();
  use_gpu(0);
  copy_batch_and_look(5);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  const std::map<std::string, int (*)()> scenarios = {
      {"a_thread", a_thread},
      {"a_context", a_context},
  };
  require(use_lookup("dlsym"), "no driver");
  const auto scenario = scenarios.find(argc > 1 ? argv[1] : "");
  require(scenario != scenarios.end(), "no such scenario");
  return scenario->second();
}
