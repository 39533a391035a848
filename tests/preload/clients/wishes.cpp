// Programs that say how a copy is to be made: by the priority of its stream, by a batch's flags.
// What they measure or do is printed. Every byte is looked at.
//   wishes NAME
#include <atomic>
#include <chrono>
#include <cstring>
#include <map>
#include <string>
#include <thread>

#include "client.h"

namespace {

using namespace client;

constexpr size_t kBulkBytes = size_t{128} << 20;
constexpr size_t kSizeBytes = size_t{16} << 20;

CUstream stream_of(int priority) {
  CUstream stream = nullptr;
  call("cuStreamCreateWithPriority", &stream, static_cast<unsigned>(CU_STREAM_NON_BLOCKING),
       priority);
  return stream;
}

CUevent new_event() {
  CUevent event = nullptr;
  call("cuEventCreate", &event, static_cast<unsigned>(CU_EVENT_DEFAULT));
  return event;
}

void to_device(CUdeviceptr to, const uint8_t* from, size_t size_bytes, CUstream stream) {
  call("cuMemcpyHtoDAsync_v2", to, static_cast<const void*>(from), size_bytes, stream);
}

void expect_device_holds(CUdeviceptr device, const uint8_t* bytes, size_t size_bytes) {
  std::vector<uint8_t> got(size_bytes);
  read_in_pieces(got.data(), device, size_bytes);
  require(std::memcmp(got.data(), bytes, size_bytes) == 0, "wrong bytes");
}

// A copy that meets a large one, first on a stream like the large one's and then on a stream of
// high priority: microseconds that each took.
int priority() {
  use_gpu(0);
  int least = 0, greatest = 0;
  call("cuCtxGetStreamPriorityRange", &least, &greatest);
  uint8_t* host = pin(kBulkBytes);
  Random(1).fill(host, kBulkBytes);
  const CUdeviceptr bulk = allocate(kBulkBytes), small = allocate(kSizeBytes);
  const CUstream usual = stream_of(least);
  to_device(bulk, host, kBulkBytes, usual);  // what comes first has more to do
  call("cuStreamSynchronize", usual);
  for (const int level : {least, greatest}) {
    const CUstream stream = stream_of(level);
    const CUevent begin = new_event(), end = new_event();
    const uint8_t* source = host + (level == least ? 0 : kBulkBytes / 2);
    to_device(bulk, host, kBulkBytes, usual);
    call("cuEventRecord", begin, stream);
    to_device(small, source, kSizeBytes, stream);
    call("cuEventRecord", end, stream);
    call("cuCtxSynchronize");
    float took_ms = 0;
    auto* elapsed = get<CUresult(float*, CUevent, CUevent)>("cuEventElapsedTime");
    check(elapsed(&took_ms, begin, end), "cuEventElapsedTime");
    std::printf("%d\n", static_cast<int>(took_ms * 1e3F));
    expect_device_holds(small, source, kSizeBytes);
  }
  expect_device_holds(bulk, host, kBulkBytes);
  return 0;
}

// Memory that is not pinned, on a stream of high priority.
int priority_pageable() {
  use_gpu(0);
  int least = 0, greatest = 0;
  call("cuCtxGetStreamPriorityRange", &least, &greatest);
  std::vector<uint8_t> host(kSizeBytes);
  Random(2).fill(host.data(), host.size());
  const CUdeviceptr device = allocate(kSizeBytes);
  const CUstream stream = stream_of(greatest);
  to_device(device, host.data(), kSizeBytes, stream);
  call("cuStreamSynchronize", stream);
  expect_device_holds(device, host.data(), kSizeBytes);
  return 0;
}

// Batches of which one entry, or none, asks not to get in the way of kernels: two of each, since
// relays wake up for the first. In CUDA 12.8's form, or in 13's.
int overlap(bool is_first_form) {
  constexpr size_t kEntries = 64, kEntryBytes = kSizeBytes / kEntries;
  use_gpu(0);
  const CUstream stream = stream_of(0);
  uint8_t* host = pin(kSizeBytes);
  const CUdeviceptr device = allocate(kSizeBytes);
  std::vector<CUdeviceptr> to, from;
  for (size_t entry = 0; entry < kEntries; ++entry) {
    to.push_back(device + (kEntries - 1 - entry) * kEntryBytes);
    from.push_back(reinterpret_cast<CUdeviceptr>(host) + entry * kEntryBytes);
  }
  std::vector<size_t> sizes(kEntries, kEntryBytes);
  for (int round = 0; round < 4; ++round) {
    Random(static_cast<uint64_t>(round)).fill(host, kSizeBytes);
    CUmemcpyAttributes attributes[2]{};
    for (auto& one : attributes) one.srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_STREAM;
    if (round < 2) attributes[1].flags = CU_MEMCPY_FLAG_PREFER_OVERLAP_WITH_COMPUTE;
    size_t starts[2] = {0, kEntries - 1};
    CUmemcpyAttributes* const all = attributes;
    size_t* const first = starts;
    size_t failed = 0;
    if (is_first_form)
      call("cuMemcpyBatchAsync", to.data(), from.data(), sizes.data(), kEntries, all, first,
           size_t{2}, &failed, stream);
    else
      call("cuMemcpyBatchAsync_v2", to.data(), from.data(), sizes.data(), kEntries, all, first,
           size_t{2}, stream);
    call("cuStreamSynchronize", stream);
    for (size_t entry = 0; entry < kEntries; ++entry)
      expect_device_holds(to[entry], host + entry * kEntryBytes, kEntryBytes);
  }
  return 0;
}

template <typename... Arguments>
CUresult answer_of(const char* symbol, Arguments... arguments) {
  return get<CUresult(Arguments...)>(symbol)(arguments...);
}

// A batch in which the last entry is of no bytes, which the driver refuses. In CUDA 12.8's form, or
// in 13's.
int empty_entry(bool is_first_form) {
  constexpr size_t kEntries = 64, kEntryBytes = kSizeBytes / kEntries;
  use_gpu(0);
  const CUstream stream = stream_of(0);
  uint8_t* host = pin(kSizeBytes);
  const CUdeviceptr device = allocate(kSizeBytes);
  Random(1).fill(host, kSizeBytes);
  write_in_pieces(device, host, kSizeBytes);
  const std::vector<uint8_t> before(host, host + kSizeBytes);
  Random(2).fill(host, kSizeBytes);
  std::vector<CUdeviceptr> to, from;
  for (size_t entry = 0; entry < kEntries; ++entry) {
    to.push_back(device + (kEntries - 1 - entry) * kEntryBytes);
    from.push_back(reinterpret_cast<CUdeviceptr>(host) + entry * kEntryBytes);
  }
  std::vector<size_t> sizes(kEntries, kEntryBytes);
  sizes.back() = 0;
  CUmemcpyAttributes attributes{};
  attributes.srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_STREAM;
  size_t start = 0, failed = 0;
  const CUresult result =
      is_first_form ? answer_of("cuMemcpyBatchAsync", to.data(), from.data(), sizes.data(),
                                kEntries, &attributes, &start, size_t{1}, &failed, stream)
                    : answer_of("cuMemcpyBatchAsync_v2", to.data(), from.data(), sizes.data(),
                                kEntries, &attributes, &start, size_t{1}, stream);
  require(result == CUDA_ERROR_INVALID_VALUE, "a batch with an entry of no bytes is taken");
  require(!is_first_form || failed == kEntries - 1, "another entry is named");
  call("cuStreamSynchronize", stream);
  expect_device_holds(device, before.data(), kSizeBytes);
  return 0;
}

// The same of boxes.
int overlap_boxes(bool is_first_form) {
  use_gpu(0);
  const CUstream stream = stream_of(0);
  uint8_t* host = pin(kSizeBytes);
  const CUdeviceptr device = allocate(kSizeBytes);
  for (int round = 0; round < 4; ++round) {
    Random(static_cast<uint64_t>(round)).fill(host, kSizeBytes);
    CUDA_MEMCPY3D_BATCH_OP boxes[2]{};
    for (size_t half = 0; half < 2; ++half) {
      CUDA_MEMCPY3D_BATCH_OP& box = boxes[half];
      box.src.type = box.dst.type = CU_MEMCPY_OPERAND_TYPE_POINTER;
      box.src.op.ptr.ptr = reinterpret_cast<CUdeviceptr>(host) + half * kSizeBytes / 2;
      box.dst.op.ptr.ptr = device + half * kSizeBytes / 2;
      box.extent = {kSizeBytes / 2, 1, 1};
      box.srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_STREAM;
      if (round < 2 && half == 1) box.flags = CU_MEMCPY_FLAG_PREFER_OVERLAP_WITH_COMPUTE;
    }
    CUDA_MEMCPY3D_BATCH_OP* const all = boxes;
    size_t failed = 0;
    if (is_first_form)
      call("cuMemcpy3DBatchAsync", size_t{2}, all, &failed, 0ull, stream);
    else
      call("cuMemcpy3DBatchAsync_v2", size_t{2}, all, 0ull, stream);
    call("cuStreamSynchronize", stream);
    expect_device_holds(device, host, kSizeBytes);
  }
  return 0;
}

// Memory that is freed in the stream's order behind its copies, while the program holds the stream
// back until after it has freed it.
int freed_behind() {
  use_gpu(0);
  const CUstream stream = stream_of(0);
  uint8_t* host = pin(kSizeBytes);
  uint8_t* landing = pin(kSizeBytes);
  uint8_t* word = pin(4096);
  for (int round = 0; round < 3; ++round) {
    const CUdeviceptr device = allocate(kSizeBytes);
    Random(static_cast<uint64_t>(round)).fill(host, kSizeBytes);
    std::memset(landing, 0, kSizeBytes);
    std::memset(word, 0, 4096);
    call("cuStreamWaitValue32_v2", stream, reinterpret_cast<CUdeviceptr>(word), cuuint32_t{1},
         static_cast<unsigned>(CU_STREAM_WAIT_VALUE_GEQ));
    to_device(device, host, kSizeBytes, stream);
    call("cuMemcpyDtoHAsync_v2", static_cast<void*>(landing), device, kSizeBytes, stream);
    call("cuMemFreeAsync", device, stream);
    auto* free = get<CUresult(CUdeviceptr, CUstream)>("cuMemFreeAsync");
    std::printf("again: %d\n", static_cast<int>(free(device, stream)));
    reinterpret_cast<std::atomic<uint32_t>*>(word)->store(1);
    call("cuStreamSynchronize", stream);
    require(std::memcmp(host, landing, kSizeBytes) == 0, "wrong bytes");
  }
  return 0;
}

// A batch of one entry reads memory that is not pinned in the stream's order too: bytes count that
// another thread writes while the stream is held. The driver's own call may wait for the stream.
int late_source(bool is_box) {
  use_gpu(0);
  const CUstream stream = stream_of(0);
  uint8_t* word = pin(4096);
  std::memset(word, 0, 4096);
  std::vector<uint8_t> host(kSizeBytes);
  Random(1).fill(host.data(), kSizeBytes);
  const CUdeviceptr device = allocate(kSizeBytes);
  call("cuStreamWaitValue32_v2", stream, reinterpret_cast<CUdeviceptr>(word), cuuint32_t{1},
       static_cast<unsigned>(CU_STREAM_WAIT_VALUE_GEQ));
  std::thread writer([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    Random(2).fill(host.data(), kSizeBytes);
    reinterpret_cast<std::atomic<uint32_t>*>(word)->store(1);
  });
  CUdeviceptr to = device, from = reinterpret_cast<CUdeviceptr>(host.data());
  if (is_box) {
    CUDA_MEMCPY3D_BATCH_OP box{};
    box.src.type = box.dst.type = CU_MEMCPY_OPERAND_TYPE_POINTER;
    box.src.op.ptr.ptr = from;
    box.dst.op.ptr.ptr = to;
    box.extent = {kSizeBytes, 1, 1};
    box.srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_STREAM;
    call("cuMemcpy3DBatchAsync_v2", size_t{1}, &box, 0ull, stream);
  } else {
    CUmemcpyAttributes attributes{};
    attributes.srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_STREAM;
    size_t size_bytes = kSizeBytes, start = 0;
    call("cuMemcpyBatchAsync_v2", &to, &from, &size_bytes, size_t{1}, &attributes, &start,
         size_t{1}, stream);
  }
  writer.join();
  call("cuStreamSynchronize", stream);
  expect_device_holds(device, host.data(), kSizeBytes);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  const std::map<std::string, int (*)()> wishes = {
      {"priority", priority},
      {"priority_pageable", priority_pageable},
      {"empty_entry_12080", [] { return empty_entry(true); }},
      {"empty_entry", [] { return empty_entry(false); }},
      {"overlap_12080", [] { return overlap(true); }},
      {"overlap", [] { return overlap(false); }},
      {"overlap_boxes_12080", [] { return overlap_boxes(true); }},
      {"overlap_boxes", [] { return overlap_boxes(false); }},
      {"late_source", [] { return late_source(false); }},
      {"late_source_box", [] { return late_source(true); }},
      {"freed_behind", freed_behind}};
  const auto wish = wishes.find(argc > 1 ? argv[1] : "");
  require(use_lookup("dlsym"), "no driver");
  require(wish != wishes.end(), "no such wish");
  return wish->second();
}
