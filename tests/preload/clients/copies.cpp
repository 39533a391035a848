// Copies random bytes through every linear entry point and looks at every byte, those beside the
// copy included.
//
//   copies LOOKUP all SIZE...     every entry point, three pairs of offsets each
//   copies LOOKUP few SIZE...     one entry point and one pair of odd offsets a direction
//   copies LOOKUP pageable SIZE...  as all, of host memory that is not pinned; what an asynchronous
//                                   call to the device has read is changed once it has returned
#include <cstring>
#include <string>

#include "client.h"

namespace {

using namespace client;

constexpr size_t kGuardBytes = 64;

struct Buffers {
  uint8_t* host = nullptr;
  bool is_pinned = true;
  CUdeviceptr device = 0;
  std::vector<uint8_t> source;  // what the copy's source holds
  std::vector<uint8_t> before;  // what its destination held
  std::vector<uint8_t> after;   // what it holds now
  CUstream stream = nullptr;
};

struct EntryPoint {
  const char* symbol;
  bool to_device;
  bool is_async;
  bool is_unified;  // cuMemcpy[Async]: direction by address

  bool is_legacy() const { return !std::string(symbol).ends_with("_ptsz"); }
};

constexpr EntryPoint kEntryPoints[] = {
    {"cuMemcpyHtoD_v2", true, false, false},
    {"cuMemcpyHtoD_v2_ptds", true, false, false},
    {"cuMemcpyDtoH_v2", false, false, false},
    {"cuMemcpyDtoH_v2_ptds", false, false, false},
    {"cuMemcpyHtoDAsync_v2", true, true, false},
    {"cuMemcpyHtoDAsync_v2_ptsz", true, true, false},
    {"cuMemcpyDtoHAsync_v2", false, true, false},
    {"cuMemcpyDtoHAsync_v2_ptsz", false, true, false},
    {"cuMemcpy", true, false, true},
    {"cuMemcpy", false, false, true},
    {"cuMemcpy_ptds", true, false, true},
    {"cuMemcpy_ptds", false, false, true},
    {"cuMemcpyAsync", true, true, true},
    {"cuMemcpyAsync", false, true, true},
    {"cuMemcpyAsync_ptsz", true, true, true},
    {"cuMemcpyAsync_ptsz", false, true, true},
};

void enqueue(const EntryPoint& entry, void* host, CUdeviceptr device, size_t size_bytes,
             CUstream stream) {
  const auto address = reinterpret_cast<CUdeviceptr>(host);
  const CUdeviceptr to = entry.to_device ? device : address;
  const CUdeviceptr from = entry.to_device ? address : device;
  if (entry.is_unified && entry.is_async)
    call(entry.symbol, to, from, size_bytes, stream);
  else if (entry.is_unified)
    call(entry.symbol, to, from, size_bytes);
  else if (entry.to_device && entry.is_async)
    call(entry.symbol, device, static_cast<const void*>(host), size_bytes, stream);
  else if (entry.to_device)
    call(entry.symbol, device, static_cast<const void*>(host), size_bytes);
  else if (entry.is_async)
    call(entry.symbol, host, device, size_bytes, stream);
  else
    call(entry.symbol, host, device, size_bytes);
}

void check_bytes(const Buffers& buffers, size_t offset, size_t size_bytes, size_t source_offset,
                 const char* symbol) {
  const uint8_t* after = buffers.after.data();
  const uint8_t* before = buffers.before.data();
  const size_t end = offset + size_bytes;
  const bool copied =
      std::memcmp(after + offset, buffers.source.data() + source_offset, size_bytes) == 0;
  const bool untouched = std::memcmp(after, before, offset) == 0 &&
                         std::memcmp(after + end, before + end, buffers.after.size() - end) == 0;
  if (copied && untouched) return;
  std::fprintf(stderr, "client: %s of %zu bytes: %s\n", symbol, size_bytes,
               copied ? "bytes beside the copy changed" : "wrong bytes");
  std::exit(1);
}

void copy(Buffers& buffers, const EntryPoint& entry, size_t size_bytes, size_t host_offset,
          size_t device_offset, CUstream stream) {
  const size_t whole = size_bytes + 2 * kGuardBytes;
  Random random(size_bytes + host_offset);
  for (auto* bytes : {&buffers.source, &buffers.before, &buffers.after}) bytes->resize(whole);
  random.fill(buffers.source.data(), whole);
  random.fill(buffers.before.data(), whole);
  const auto& host_bytes = entry.to_device ? buffers.source : buffers.before;
  const auto& device_bytes = entry.to_device ? buffers.before : buffers.source;
  std::memcpy(buffers.host, host_bytes.data(), whole);
  write_in_pieces(buffers.device, device_bytes.data(), whole);

  enqueue(entry, buffers.host + host_offset, buffers.device + device_offset, size_bytes, stream);
  if (!buffers.is_pinned && entry.to_device) std::memset(buffers.host, 0, whole);
  if (!buffers.is_pinned && !entry.to_device) {
    std::memcpy(buffers.after.data(), buffers.host, whole);
    check_bytes(buffers, host_offset, size_bytes, device_offset, entry.symbol);
  }
  if (entry.is_async && stream != nullptr) call("cuStreamSynchronize", stream);
  if (entry.is_async && stream == nullptr) call("cuCtxSynchronize");

  if (entry.to_device) {
    read_in_pieces(buffers.after.data(), buffers.device, whole);
    check_bytes(buffers, device_offset, size_bytes, host_offset, entry.symbol);
  } else {
    std::memcpy(buffers.after.data(), buffers.host, whole);
    check_bytes(buffers, host_offset, size_bytes, device_offset, entry.symbol);
  }
}

}  // namespace

int main(int argc, char** argv) {
  require(argc > 3 && use_lookup(argv[1]), "usage: copies LOOKUP all|few|pageable SIZE...");
  const bool is_few = std::string(argv[2]) == "few";
  std::vector<size_t> sizes;
  size_t largest = 0;
  for (int index = 3; index < argc; ++index) {
    sizes.push_back(std::strtoull(argv[index], nullptr, 10));
    largest = std::max(largest, sizes.back());
  }
  use_gpu(0);
  Buffers buffers;
  buffers.is_pinned = std::string(argv[2]) != "pageable";
  std::vector<uint8_t> pageable(buffers.is_pinned ? 0 : largest + 2 * kGuardBytes);
  buffers.host = buffers.is_pinned ? pin(largest + 2 * kGuardBytes) : pageable.data();
  buffers.device = allocate(largest + 2 * kGuardBytes);
  call("cuStreamCreate", &buffers.stream, static_cast<unsigned>(CU_STREAM_NON_BLOCKING));
  for (const EntryPoint& entry : kEntryPoints)
    for (const size_t size_bytes : sizes) {
      const bool is_plain_async = entry.is_async && !entry.is_unified && entry.is_legacy();
      if (is_few && !is_plain_async) continue;
      copy(buffers, entry, size_bytes, 3, 3, buffers.stream);
      if (is_few) continue;
      copy(buffers, entry, size_bytes, 0, 0, nullptr);
      copy(buffers, entry, size_bytes, 17, 6, entry.is_async ? buffers.stream : nullptr);
    }
  return 0;
}
