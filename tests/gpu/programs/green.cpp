// Green contexts: parts of a GPU's multiprocessors as contexts of their own. Copies and a fill on
// streams of two such parts at once, and beside them on the GPU's own context.
//   green SIZE_BYTES
#include "driver_entry.h"
#include "driver_program.h"
#include "watch.h"

namespace {

using namespace program;

#if CUDA_VERSION >= 12050

constexpr unsigned kParts = 2, kProcessors = 16;
constexpr int kRounds = 8;

struct Part {
  CUgreenCtx green = nullptr;
  CUcontext context = nullptr;
  CUstream stream = nullptr;
};

std::vector<Part> split_gpu() {
  CUdevResource whole{}, rest{}, pieces[kParts] = {};
  unsigned count = kParts;
  MUST(DRIVER(cuDeviceGetDevResource)(0, &whole, CU_DEV_RESOURCE_TYPE_SM));
  MUST(DRIVER(cuDevSmResourceSplitByCount)(pieces, &count, &whole, &rest, 0, kProcessors));
  require(count == kParts, "the GPU cannot be split");
  std::vector<Part> parts(kParts);
  for (unsigned at = 0; at < kParts; ++at) {
    CUdevResourceDesc description = nullptr;
    Part& part = parts[at];
    MUST(DRIVER(cuDevResourceGenerateDesc)(&description, &pieces[at], 1));
    MUST(DRIVER(cuGreenCtxCreate)(&part.green, description, 0, CU_GREEN_CTX_DEFAULT_STREAM));
    MUST(DRIVER(cuCtxFromGreenCtx)(&part.context, part.green));
    MUST(DRIVER(cuGreenCtxStreamCreate)(&part.stream, part.green, CU_STREAM_NON_BLOCKING, 0));
  }
  return parts;
}

void copy_on(const std::vector<CUstream>& streams, size_t size_bytes, const char* what) {
  std::vector<TripBuffers> buffers;
  for (size_t at = 0; at < streams.size(); ++at)
    buffers.push_back(make_buffers(size_bytes, Pattern(at)));
  for (int round = 0; round < kRounds; ++round) {
    for (size_t at = 0; at < streams.size(); ++at) {
      MUST(cuMemsetD8Async(buffers[at].device, 0, size_bytes, streams[at]));
      to_device(buffers[at].device, buffers[at].source, size_bytes, streams[at]);
      to_host(buffers[at].landing, buffers[at].device, size_bytes, streams[at]);
    }
  }
  for (size_t at = 0; at < streams.size(); ++at) {
    MUST(cuStreamSynchronize(streams[at]));
    Pattern(at).check(buffers[at].landing, size_bytes, what);
    free_buffers(buffers[at]);
  }
  std::printf("%s: every byte is right\n", what);
}

void run(const std::vector<CUcontext>& contexts, size_t size_bytes) {
  const std::vector<Part> parts = split_gpu();
  std::vector<CUstream> streams;
  for (const Part& part : parts) streams.push_back(part.stream);
  copy_on(streams, size_bytes, "green streams, the GPU's context current");
  for (const Part& part : parts) {
    MUST(cuCtxSetCurrent(part.context));
    const CUstream plain = new_stream();
    copy_on({part.stream, plain}, size_bytes, "a green context current");
    MUST(cuStreamDestroy(plain));
  }
  MUST(cuCtxSetCurrent(contexts[0]));
  streams.push_back(new_stream());
  copy_on(streams, size_bytes, "green streams beside another");
  for (const Part& part : parts) {
    MUST(cuStreamDestroy(part.stream));
    MUST(DRIVER(cuGreenCtxDestroy)(part.green));
  }
}

#else

void run(const std::vector<CUcontext>&, size_t) {
  std::printf("this toolkit has no green contexts\n");
}

#endif

}  // namespace

int main(int argc, char** argv) {
  const size_t size_bytes = size_argument(argc, argv);
  Watch::of_process().begin("green contexts", 120'000);
  run(use_gpus(1), size_bytes);
  print_counts();
  return 0;
}
