// Copies between pinned memory and GPU 0 without pause, as it is told on its standard input.
//   copier
//   a line `h2d|d2h SIZE_BYTES SEGMENT_BYTES SECONDS` is answered with one line of JSON: GB/s, and
//   whether all bytes of the last copy are right. SEGMENT_BYTES 0: one linear copy, else a batch of
//   segments that lie in another order on the GPU
#include <chrono>
#include <deque>
#include <iostream>
#include <sstream>

#include "runtime_program.h"
#include "words.cuh"

namespace {

using namespace program;

constexpr size_t kMostBytes = size_t{1} << 30;
constexpr size_t kInFlight = 2;

struct Request {
  std::string direction;
  size_t size_bytes = 0, segment_bytes = 0;
  double seconds = 0;
  bool is_up() const { return direction == "h2d"; }
};

struct Buffers {
  unsigned char* host = pin(kMostBytes);
  unsigned char* device = allocate(kMostBytes);
  unsigned long long* wrong = reinterpret_cast<unsigned long long*>(allocate(sizeof *wrong));
  cudaStream_t stream = new_stream();
};

uint64_t* words_of(unsigned char* memory) { return reinterpret_cast<uint64_t*>(memory); }

/// Segments in their order in host memory, and in the opposite one on the GPU. None for a linear
/// copy.
Batch<void*> batch_of(const Request& request, const Buffers& buffers) {
  Batch<void*> batch;
  const size_t segment = request.segment_bytes;
  const size_t count = segment > 0 ? request.size_bytes / segment : 0;
  for (size_t at = 0; at < count; ++at)
    batch.add(buffers.device + (count - 1 - at) * segment, buffers.host + at * segment, segment);
  if (!request.is_up()) std::swap(batch.to, batch.from);
  return batch;
}

/// The source's words are new, and what is at the target is wrong.
void prepare(const Request& request, const Buffers& buffers, uint64_t seed) {
  const size_t count = request.size_bytes / sizeof(uint64_t);
  uint64_t* const host = words_of(buffers.host);
  const bool is_up = request.is_up();
  in_parts(count, [=](size_t from, size_t to) {
    for (size_t at = from; at < to; ++at) host[at] = is_up ? word_at(seed, at) : 0;
  });
  if (is_up)
    MUST(cudaMemsetAsync(buffers.device, 0, request.size_bytes, buffers.stream));
  else
    fill_words<<<256, 256, 0, buffers.stream>>>(words_of(buffers.device), count, seed);
  MUST(cudaGetLastError());
  MUST(cudaStreamSynchronize(buffers.stream));
}

/// Where a word of the target comes from: batches turn the order of segments round.
size_t origin_of(const Request& request, size_t word) {
  if (request.segment_bytes == 0) return word;
  const size_t each = request.segment_bytes / sizeof(uint64_t);
  const size_t count = request.size_bytes / request.segment_bytes;
  return (count - 1 - word / each) * each + word % each;
}

bool is_right(const Request& request, const Buffers& buffers, uint64_t seed) {
  const size_t count = request.size_bytes / sizeof(uint64_t);
  uint64_t* const host = words_of(buffers.host);
  if (request.is_up()) {  // home again, as pageable memory goes, which is nothing that is measured
    std::vector<uint64_t> back(count);
    MUST(cudaMemcpy(back.data(), buffers.device, request.size_bytes, cudaMemcpyDeviceToHost));
    std::memcpy(host, back.data(), request.size_bytes);
  }
  std::atomic<size_t> wrong{0};
  in_parts(count, [=, &wrong](size_t from, size_t to) {
    size_t mine = 0;
    for (size_t at = from; at < to; ++at) mine += host[at] != word_at(seed, origin_of(request, at));
    wrong += mine;
  });
  return wrong == 0;
}

double seconds_since(std::chrono::steady_clock::time_point begin) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

void answer(const Request& request, const Buffers& buffers, uint64_t seed) {
  require(request.size_bytes > 0 && request.size_bytes <= kMostBytes, "no such size");
  prepare(request, buffers, seed);
  Batch<void*> batch = batch_of(request, buffers);
  std::deque<cudaEvent_t> ends;
  size_t copies = 0;
  const auto wait = [&] {
    MUST(cudaEventSynchronize(ends.front()));
    MUST(cudaEventDestroy(ends.front()));
    ends.pop_front();
  };
  const auto begin = std::chrono::steady_clock::now();
  for (; seconds_since(begin) < request.seconds || copies == 0; ++copies) {
    if (ends.size() == kInFlight) wait();
    if (request.segment_bytes > 0)
      copy_batch(batch, buffers.stream);
    else if (request.is_up())
      to_device(buffers.device, buffers.host, request.size_bytes, buffers.stream);
    else
      to_host(buffers.host, buffers.device, request.size_bytes, buffers.stream);
    cudaEvent_t end = nullptr;
    MUST(cudaEventCreateWithFlags(&end, cudaEventBlockingSync | cudaEventDisableTiming));
    MUST(cudaEventRecord(end, buffers.stream));
    ends.push_back(end);
  }
  while (!ends.empty()) wait();
  const double elapsed_s = seconds_since(begin);
  std::printf("{\"gbps\": %.2f, \"copies\": %zu, \"verified\": %s}\n",
              static_cast<double>(copies * request.size_bytes) / elapsed_s / 1e9, copies,
              is_right(request, buffers, seed) ? "true" : "false");
  std::fflush(stdout);
}

}  // namespace

int main() {
  MUST(cudaSetDevice(0));
  const Buffers buffers;
  std::printf("{\"ready\": true}\n");
  std::fflush(stdout);
  std::string line;
  for (uint64_t seed = 1; std::getline(std::cin, line); ++seed) {
    Request request;
    std::istringstream(line) >> request.direction >> request.size_bytes >> request.segment_bytes >>
        request.seconds;
    answer(request, buffers, seed);
  }
  return 0;
}
