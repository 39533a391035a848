// Copies recorded in graphs, in every capture mode, launched again and again beside plain copies;
// and plain copies while another thread records.
//   captures SIZE_BYTES
#include "driver_program.h"

namespace {

using namespace program;

constexpr int kLaunches = 3;

// A copy to the GPU and one back, on a stream of their own.
struct RoundTrip {
  RoundTrip(size_t size_bytes_, uint64_t seed)
      : size_bytes(size_bytes_),
        pattern(seed),
        source(pin(size_bytes, pattern)),
        landing(pin(size_bytes)),
        device(allocate(size_bytes)),
        stream(new_stream()) {
    std::memset(landing, 0, size_bytes);
  }

  void enqueue(Kind kind) {
    to_device(device, source, size_bytes, stream, kind);
    to_host(landing, device, size_bytes, stream, kind);
  }
  void check(const char* what) {
    pattern.check(landing, size_bytes, what);
    std::memset(landing, 0, size_bytes);
  }

  size_t size_bytes;
  Pattern pattern;
  unsigned char* source;
  unsigned char* landing;
  CUdeviceptr device;
  CUstream stream;
};

CUgraphExec record(RoundTrip& trip, CUstreamCaptureMode mode) {
  CUgraph graph = nullptr;
  CUgraphExec executable = nullptr;
  CUstreamCaptureStatus status{};
  MUST(cuStreamBeginCapture(trip.stream, mode));
  trip.enqueue(Kind::kCaptured);
  MUST(cuStreamIsCapturing(trip.stream, &status));
  require(status == CU_STREAM_CAPTURE_STATUS_ACTIVE, "a copy ended the capture");
  MUST(cuStreamEndCapture(trip.stream, &graph));
  require(graph != nullptr, "no graph was recorded");
  MUST(cuGraphInstantiate(&executable, graph, 0));
  MUST(cuGraphDestroy(graph));
  return executable;
}

// The graph's copies and plain ones in another stream, at the same time.
void launch(CUgraphExec graph, RoundTrip& recorded, RoundTrip& plain) {
  for (int round = 0; round < kLaunches; ++round) {
    MUST(cuGraphLaunch(graph, recorded.stream));
    plain.enqueue(Kind::kPinned);
    MUST(cuStreamSynchronize(recorded.stream));
    recorded.check("a graph's copies");
    MUST(cuStreamSynchronize(plain.stream));
    plain.check("copies beside a graph's");
  }
  MUST(cuGraphExecDestroy(graph));
}

void in_this_thread(RoundTrip& recorded, RoundTrip& plain) {
  for (const CUstreamCaptureMode mode :
       {CU_STREAM_CAPTURE_MODE_GLOBAL, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL,
        CU_STREAM_CAPTURE_MODE_RELAXED})
    launch(record(recorded, mode), recorded, plain);
}

void in_another_thread(CUcontext context, RoundTrip& recorded, RoundTrip& plain) {
  for (const CUstreamCaptureMode mode :
       {CU_STREAM_CAPTURE_MODE_THREAD_LOCAL, CU_STREAM_CAPTURE_MODE_RELAXED}) {
    CUgraphExec graph = nullptr;
    std::thread recorder([&] {
      MUST(cuCtxSetCurrent(context));
      graph = record(recorded, mode);
    });
    // Not this thread's capture: it may copy, wait, allocate and pin.
    for (int round = 0; round < kLaunches; ++round) {
      plain.enqueue(Kind::kPinned);
      MUST(cuStreamSynchronize(plain.stream));
      plain.check("copies beside another thread's capture");
      MUST(cuMemFreeHost(pin(1 << 20)));
      MUST(cuMemFree(allocate(1 << 20)));
    }
    recorder.join();
    launch(graph, recorded, plain);
  }
}

// While one thread records in Global mode, others may only enqueue; braid's own calls inside those
// copies must not end the capture.
void beside_a_global_capture(CUcontext context, RoundTrip& recorded, RoundTrip& plain) {
  CUgraph graph = nullptr;
  CUgraphExec executable = nullptr;
  MUST(cuStreamBeginCapture(recorded.stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
  recorded.enqueue(Kind::kCaptured);
  std::thread copier([&] {
    MUST(cuCtxSetCurrent(context));
    for (int round = 0; round < kLaunches; ++round) plain.enqueue(Kind::kPinned);
  });
  copier.join();
  recorded.enqueue(Kind::kCaptured);
  MUST(cuStreamEndCapture(recorded.stream, &graph));
  require(graph != nullptr, "another thread's copies ended a Global capture");
  MUST(cuStreamSynchronize(plain.stream));
  plain.check("copies beside a Global capture");
  MUST(cuGraphInstantiate(&executable, graph, 0));
  MUST(cuGraphDestroy(graph));
  launch(executable, recorded, plain);
}

// A stream that joins a capture by an event records too; by then it is this thread's.
void joined_by_an_event(RoundTrip& recorded, RoundTrip& plain) {
  const CUstream other = new_stream();
  const CUevent fork = new_event(), join = new_event();
  CUgraph graph = nullptr;
  CUgraphExec executable = nullptr;
  MUST(cuStreamBeginCapture(recorded.stream, CU_STREAM_CAPTURE_MODE_RELAXED));
  to_device(recorded.device, recorded.source, recorded.size_bytes, recorded.stream,
            Kind::kCaptured);
  MUST(cuEventRecord(fork, recorded.stream));
  MUST(cuStreamWaitEvent(other, fork, 0));
  to_host(recorded.landing, recorded.device, recorded.size_bytes, other, Kind::kCaptured);
  MUST(cuEventRecord(join, other));
  MUST(cuStreamWaitEvent(recorded.stream, join, 0));
  MUST(cuStreamEndCapture(recorded.stream, &graph));
  MUST(cuGraphInstantiate(&executable, graph, 0));
  MUST(cuGraphDestroy(graph));
  launch(executable, recorded, plain);
}

}  // namespace

int main(int argc, char** argv) {
  const size_t size_bytes = size_argument(argc, argv);
  const CUcontext context = use_gpus(1)[0];
  RoundTrip recorded(size_bytes, 1), plain(size_bytes, 2);
  in_this_thread(recorded, plain);
  in_another_thread(context, recorded, plain);
  beside_a_global_capture(context, recorded, plain);
  joined_by_an_event(recorded, plain);
  print_counts();
  return 0;
}
