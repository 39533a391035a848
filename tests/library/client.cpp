// A program that links libbraid as its users do: in C++17, with a driver of its own. It copies a
// buffer to GPU 0 and back and verifies every byte.
//
//   client MEGABYTES pinned|pageable [background]
//
// For each copy it prints the bandwidth, what was forecast, and what became of the copy. With
// `background` it copies until relays are open.
#include <braid/copy.h>
#include <cuda.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

namespace {

[[noreturn]] void die(const std::string& what) {
  std::fprintf(stderr, "client: %s\n", what.c_str());
  std::exit(1);
}

void check(CUresult result, const char* doing) {
  if (result != CUDA_SUCCESS) die(std::string(doing) + ": error " + std::to_string(result));
}
#define CHECK(call) check(call, #call)

struct Buffers {
  std::vector<char> pageable[2];
  void* host[2] = {nullptr, nullptr};
  CUdeviceptr device = 0;
};

Buffers make_buffers(size_t size_bytes, bool is_pageable) {
  Buffers buffers;
  for (int end = 0; end < 2; ++end) {
    if (is_pageable) buffers.pageable[end].resize(size_bytes);
    buffers.host[end] = buffers.pageable[end].data();
    if (!is_pageable)
      CHECK(cuMemHostAlloc(&buffers.host[end], size_bytes, CU_MEMHOSTALLOC_PORTABLE));
    std::memset(buffers.host[end], 0, size_bytes);
  }
  auto* words = static_cast<uint32_t*>(buffers.host[0]);
  for (size_t index = 0; index < size_bytes / sizeof *words; ++index)
    words[index] = static_cast<uint32_t>(index * 2654435761u);
  CHECK(cuMemAlloc(&buffers.device, size_bytes));
  return buffers;
}

std::string copy(braid::Engine& engine, const char* name, void* to, const void* from,
                 size_t size_bytes, CUstream stream) {
  CUevent begin = nullptr, end = nullptr;
  CHECK(cuEventCreate(&begin, CU_EVENT_DEFAULT));
  CHECK(cuEventCreate(&end, CU_EVENT_DEFAULT));
  const auto expected = engine.forecast(to, from, size_bytes, stream);
  if (!expected.ok()) die(expected.status().message());
  CHECK(cuEventRecord(begin, stream));
  const auto copied = engine.copy(to, from, size_bytes, stream);
  if (!copied.ok()) die(copied.status().message());
  CHECK(cuEventRecord(end, stream));
  CHECK(cuStreamSynchronize(stream));
  float elapsed_ms = 0;
  CHECK(cuEventElapsedTime(&elapsed_ms, begin, end));
  std::printf("%s %.1f %s %s\n", name, static_cast<double>(size_bytes) / 1e6 / elapsed_ms,
              expected.value().reason, copied.value().reason);
  return copied.value().reason;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 3) die("usage: client MEGABYTES pinned|pageable [background]");
  const size_t size_bytes = std::strtoull(argv[1], nullptr, 10) << 20;
  const bool is_background = argc > 3;
  CUcontext context = nullptr;
  CUstream stream = nullptr;
  CHECK(cuInit(0));
  CHECK(cuDevicePrimaryCtxRetain(&context, 0));
  CHECK(cuCtxSetCurrent(context));
  CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  Buffers buffers = make_buffers(size_bytes, std::string_view(argv[2]) == "pageable");
  void* device = braid::at(buffers.device);
  const std::vector<braid_option> options =
      is_background ? std::vector<braid_option>{{"BRAID_OPENING", "background"}}
                    : std::vector<braid_option>();
  auto opened = braid::Engine::open(options);
  if (!opened.ok()) die(opened.status().message());
  braid::Engine engine = std::move(opened).value();
  while (copy(engine, "h2d", device, buffers.host[0], size_bytes, stream) == "not_ready") continue;
  copy(engine, "d2h", buffers.host[1], device, size_bytes, stream);
  if (std::memcmp(buffers.host[0], buffers.host[1], size_bytes) != 0) die("wrong bytes");
  std::puts("verified");
}
