// Events and queries across copies: what they say of a copy is true when they say it.
//   timing SIZE_BYTES
#include "driver_program.h"

namespace {

using namespace program;

// No server moves a terabyte a second to or from one GPU: an end that is nearer was set too early.
constexpr double kImpossibleBytesPerMs = 1e9;

float elapsed_ms(CUevent begin, CUevent end) {
  float elapsed = 0;
  MUST(cuEventElapsedTime(&elapsed, begin, end));
  return elapsed;
}

struct Buffers {
  explicit Buffers(size_t size_bytes_, uint64_t seed)
      : size_bytes(size_bytes_),
        pattern(seed),
        source(pin(size_bytes, pattern)),
        landing(pin(size_bytes)),
        device(allocate(size_bytes)) {}
  size_t size_bytes;
  Pattern pattern;
  unsigned char* source;
  unsigned char* landing;
  CUdeviceptr device;
};

// Events between copies: each interval is a copy's, and together they are the whole.
void intervals(Buffers& buffers, CUstream stream) {
  constexpr size_t kCopies = 6;
  CUevent events[kCopies + 1];
  for (CUevent& event : events) event = new_event();
  MUST(cuEventRecord(events[0], stream));
  for (size_t copy = 0; copy < kCopies; ++copy) {
    if (copy % 2 == 0)
      to_device(buffers.device, buffers.source, buffers.size_bytes, stream);
    else
      to_host(buffers.landing, buffers.device, buffers.size_bytes, stream);
    MUST(cuEventRecord(events[copy + 1], stream));
  }
  MUST(cuEventSynchronize(events[kCopies]));
  buffers.pattern.check(buffers.landing, buffers.size_bytes, "behind the last event");
  double sum = 0;
  for (size_t copy = 0; copy < kCopies; ++copy) {
    const double one = elapsed_ms(events[copy], events[copy + 1]);
    require(one > static_cast<double>(buffers.size_bytes) / kImpossibleBytesPerMs,
            "an event behind a copy came too early");
    sum += one;
  }
  const double whole = elapsed_ms(events[0], events[kCopies]);
  require(sum > 0.99 * whole && sum < 1.01 * whole, "the intervals are not the whole");
}

// Bytes are there as soon as a query, of the stream or of an event behind the copies, says so.
template <typename Query>
void ask_until_done(Buffers& buffers, CUstream stream, const char* what, const Query& query) {
  const CUevent event = new_event();
  for (uint64_t round = 0; round < 5; ++round) {
    buffers.pattern = Pattern(100 + round);
    buffers.pattern.fill(buffers.source, buffers.size_bytes);
    std::memset(buffers.landing, 0, buffers.size_bytes);
    to_device(buffers.device, buffers.source, buffers.size_bytes, stream);
    to_host(buffers.landing, buffers.device, buffers.size_bytes, stream);
    MUST(cuEventRecord(event, stream));
    CUresult answer = query(event);
    while (answer == CUDA_ERROR_NOT_READY) answer = query(event);
    MUST(answer);
    buffers.pattern.check(buffers.landing, buffers.size_bytes, what);
  }
}

// A host function behind a copy runs when its bytes are there.
void host_function(Buffers& buffers, CUstream stream) {
  static std::atomic<bool> has_run;
  has_run = false;
  std::memset(buffers.landing, 0, buffers.size_bytes);
  to_host(buffers.landing, buffers.device, buffers.size_bytes, stream);
  MUST(cuLaunchHostFunc(
      stream,
      [](void* argument) {
        const auto& all = *static_cast<Buffers*>(argument);
        all.pattern.check(all.landing, all.size_bytes, "in a host function behind a copy");
        has_run = true;
      },
      &buffers));
  MUST(cuStreamSynchronize(stream));
  require(has_run, "the host function has not run");
}

// Another stream, and the legacy stream, wait for a copy as for any other work.
void other_streams(Buffers& buffers) {
  const CUstream blocking = new_stream(CU_STREAM_DEFAULT), waiting = new_stream();
  const CUevent copied_in = new_event();
  std::memset(buffers.landing, 0, buffers.size_bytes);
  to_device(buffers.device, buffers.source, buffers.size_bytes, blocking);
  to_host(buffers.landing, buffers.device, buffers.size_bytes, CU_STREAM_LEGACY);
  MUST(cuEventRecord(copied_in, CU_STREAM_LEGACY));
  MUST(cuStreamWaitEvent(waiting, copied_in, 0));
  MUST(cuMemsetD8Async(buffers.device, 0, buffers.size_bytes, waiting));
  MUST(cuStreamSynchronize(waiting));
  buffers.pattern.check(buffers.landing, buffers.size_bytes, "through the legacy stream");
}

}  // namespace

int main(int argc, char** argv) {
  const size_t size_bytes = size_argument(argc, argv);
  use_gpus(1);
  Buffers buffers(size_bytes, 1);
  const CUstream stream = new_stream();
  intervals(buffers, stream);
  ask_until_done(buffers, stream, "when the stream's query succeeds",
                 [&](CUevent) { return cuStreamQuery(stream); });
  ask_until_done(buffers, stream, "when an event's query succeeds",
                 [](CUevent event) { return cuEventQuery(event); });
  host_function(buffers, stream);
  other_streams(buffers);
  print_counts();
  return 0;
}
