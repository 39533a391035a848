// Threads that reach CUDA at the same moment, and many streams at once.
//   threads SIZE_BYTES
#include "driver_program.h"

namespace {

using namespace program;

constexpr int kThreads = 12;
constexpr int kStreams = 24;

void copy_and_look(size_t size_bytes, uint64_t seed, CUstream stream) {
  const Pattern pattern(seed);
  const TripBuffers buffers = make_buffers(size_bytes, pattern);
  for (int round = 0; round < 3; ++round) {
    there_and_back(buffers, size_bytes, stream);
    MUST(cuStreamSynchronize(stream));
    pattern.check(buffers.landing, size_bytes, "in a thread");
  }
}

// Every thread starts the driver by itself, on one of the GPUs, with one of the kinds of stream.
void all_at_once(size_t size_bytes) {
  std::atomic<int> ready{0};
  std::vector<std::thread> threads;
  for (int number = 0; number < kThreads; ++number)
    threads.emplace_back([number, size_bytes, &ready] {
      ++ready;
      while (ready < kThreads) std::this_thread::yield();
      const std::vector<CUcontext> contexts = use_gpus();
      MUST(cuCtxSetCurrent(contexts[static_cast<size_t>(number) % contexts.size()]));
      const CUstream streams[] = {new_stream(), new_stream(CU_STREAM_DEFAULT), CU_STREAM_PER_THREAD,
                                  CU_STREAM_LEGACY};
      copy_and_look(size_bytes, static_cast<uint64_t>(number), streams[number % 4]);
    });
  for (std::thread& thread : threads) thread.join();
}

void many_streams(size_t size_bytes) {
  std::vector<CUstream> streams;
  std::vector<unsigned char*> sources, landings;
  std::vector<CUdeviceptr> devices;
  for (uint64_t number = 0; number < kStreams; ++number) {
    streams.push_back(new_stream());
    sources.push_back(pin(size_bytes, Pattern(100 + number)));
    landings.push_back(pin(size_bytes));
    devices.push_back(allocate(size_bytes));
  }
  for (int round = 0; round < 3; ++round)
    for (size_t number = 0; number < kStreams; ++number) {
      to_device(devices[number], sources[number], size_bytes, streams[number]);
      to_host(landings[number], devices[number], size_bytes, streams[number]);
    }
  for (size_t number = 0; number < kStreams; ++number) {
    MUST(cuStreamSynchronize(streams[number]));
    Pattern(100 + number).check(landings[number], size_bytes, "one of many streams");
  }
}

}  // namespace

int main(int argc, char** argv) {
  const size_t size_bytes = size_argument(argc, argv);
  all_at_once(size_bytes);
  use_gpus(1);
  many_streams(size_bytes);
  print_counts();
  return 0;
}
