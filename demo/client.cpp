// An ordinary CUDA driver-API program: how fast do copies between pinned host memory and one GPU
// go, and are their bytes right? It knows nothing of braid; demo/run starts it with and without.
//
//   client [--sizes 1M,4M,...] [--repeat N] [--device N] [--json]
//
// For each size and direction, `repeat` copies are put on one stream with an event after each, and
// the median time between events counts. Then every byte is compared with what was sent; it comes
// back (or was put there) in pieces of 1 MB, so that it does not travel as it was measured.
// Bandwidths are 10^9 bytes a second. Exit code: 0, or 1 when a call failed or a byte was wrong.
#include <cuda.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

namespace {

constexpr size_t kPieceBytes = size_t{1} << 20;

void check(CUresult result, const char* doing) {
  if (result == CUDA_SUCCESS) return;
  const char* name = nullptr;
  if (cuGetErrorName(result, &name) != CUDA_SUCCESS || name == nullptr) name = "unknown error";
  std::fprintf(stderr, "client: %s: %s (%d)\n", doing, name, static_cast<int>(result));
  std::exit(1);
}
#define CHECK(call) check(call, #call)

[[noreturn]] void usage(const std::string& wrong) {
  std::fprintf(stderr,
               "client: %s\n"
               "usage: client [--sizes 1M,4M,...] [--repeat N] [--device N] [--json]\n",
               wrong.c_str());
  std::exit(2);
}

struct Arguments {
  std::vector<size_t> sizes;
  int repeat = 5;
  int device = 0;
  bool json = false;
};

struct Measurement {
  const char* direction;
  size_t size_bytes;
  double median_gbps;
  double slowest_gbps;
  double fastest_gbps;
  bool verified;
};

size_t parse_size(const std::string& text) {
  char* rest = nullptr;
  const unsigned long long number = std::strtoull(text.c_str(), &rest, 10);
  int shift = 0;
  switch (*rest) {
    case 'K': shift = 10; break;
    case 'M': shift = 20; break;
    case 'G': shift = 30; break;
    case '\0': break;
    default: usage("'" + text + "' is not a size");
  }
  if (number == 0 || (shift != 0 && rest[1] != '\0')) usage("'" + text + "' is not a size");
  return static_cast<size_t>(number) << shift;
}

std::vector<size_t> parse_sizes(const std::string& text) {
  std::vector<size_t> sizes;
  size_t at = 0;
  while (true) {
    const size_t comma = text.find(',', at);
    sizes.push_back(parse_size(text.substr(at, comma - at)));
    if (comma == std::string::npos) return sizes;
    at = comma + 1;
  }
}

Arguments parse_arguments(int argc, char** argv) {
  Arguments arguments;
  std::string sizes = "64K,256K,1M,2M,4M,8M,16M,32M,64M,128M,256M,512M,1G";
  for (int index = 1; index < argc; ++index) {
    const std::string name = argv[index];
    if (name == "--json") {
      arguments.json = true;
      continue;
    }
    if (index + 1 == argc) usage("unknown or incomplete argument '" + name + "'");
    const std::string value = argv[++index];
    if (name == "--sizes")
      sizes = value;
    else if (name == "--repeat")
      arguments.repeat = std::atoi(value.c_str());
    else if (name == "--device")
      arguments.device = std::atoi(value.c_str());
    else
      usage("unknown argument '" + name + "'");
  }
  if (arguments.repeat < 1) usage("--repeat takes a number above zero");
  arguments.sizes = parse_sizes(sizes);
  return arguments;
}

// Every byte depends on its place and on the seed, so no shifted, stale or swapped piece passes.
void fill_random(void* memory, size_t size_bytes, uint64_t seed) {
  uint64_t state = seed * 0x9e3779b97f4a7c15u + 1;
  auto* bytes = static_cast<unsigned char*>(memory);
  for (size_t at = 0; at < size_bytes; at += sizeof state) {
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    std::memcpy(bytes + at, &state, std::min(sizeof state, size_bytes - at));
  }
}

// Pinned memory for what is sent and what is received, device memory, a stream and events.
class Copier {
 public:
  Copier(size_t largest_bytes, int repeat) : events_(static_cast<size_t>(repeat) + 1) {
    CHECK(cuMemHostAlloc(&sent_, largest_bytes, CU_MEMHOSTALLOC_PORTABLE));
    CHECK(cuMemHostAlloc(&received_, largest_bytes, CU_MEMHOSTALLOC_PORTABLE));
    CHECK(cuMemAlloc(&device_, largest_bytes));
    CHECK(cuStreamCreate(&stream_, CU_STREAM_NON_BLOCKING));
    for (CUevent& event : events_) CHECK(cuEventCreate(&event, CU_EVENT_DEFAULT));
  }
  ~Copier() {
    for (CUevent event : events_) CHECK(cuEventDestroy(event));
    CHECK(cuStreamDestroy(stream_));
    CHECK(cuMemFree(device_));
    CHECK(cuMemFreeHost(received_));
    CHECK(cuMemFreeHost(sent_));
  }
  Copier(const Copier&) = delete;
  Copier& operator=(const Copier&) = delete;

  Measurement host_to_device(size_t size_bytes) {
    fill_random(sent_, size_bytes, size_bytes);
    Measurement measurement = time(
        "h2d", size_bytes, [&] { CHECK(cuMemcpyHtoDAsync(device_, sent_, size_bytes, stream_)); });
    std::memset(received_, 0xa5, size_bytes);
    for (size_t at = 0; at < size_bytes; at += kPieceBytes)
      CHECK(cuMemcpyDtoH(static_cast<char*>(received_) + at, device_ + at,
                         std::min(kPieceBytes, size_bytes - at)));
    measurement.verified = std::memcmp(sent_, received_, size_bytes) == 0;
    return measurement;
  }

  Measurement device_to_host(size_t size_bytes) {
    fill_random(sent_, size_bytes, size_bytes + 1);
    for (size_t at = 0; at < size_bytes; at += kPieceBytes)
      CHECK(cuMemcpyHtoD(device_ + at, static_cast<char*>(sent_) + at,
                         std::min(kPieceBytes, size_bytes - at)));
    std::memset(received_, 0xa5, size_bytes);
    Measurement measurement = time("d2h", size_bytes, [&] {
      CHECK(cuMemcpyDtoHAsync(received_, device_, size_bytes, stream_));
    });
    measurement.verified = std::memcmp(sent_, received_, size_bytes) == 0;
    return measurement;
  }

 private:
  template <typename Copy>
  Measurement time(const char* direction, size_t size_bytes, const Copy& copy) {
    copy();  // not timed: whatever happens only the first time
    CHECK(cuStreamSynchronize(stream_));
    CHECK(cuEventRecord(events_[0], stream_));
    for (size_t index = 1; index < events_.size(); ++index) {
      copy();
      CHECK(cuEventRecord(events_[index], stream_));
    }
    CHECK(cuStreamSynchronize(stream_));
    std::vector<double> gbps;
    for (size_t index = 1; index < events_.size(); ++index) {
      float elapsed_ms = 0;
      CHECK(cuEventElapsedTime(&elapsed_ms, events_[index - 1], events_[index]));
      gbps.push_back(static_cast<double>(size_bytes) / 1e6 / static_cast<double>(elapsed_ms));
    }
    std::sort(gbps.begin(), gbps.end());
    return {direction, size_bytes, gbps[gbps.size() / 2], gbps.front(), gbps.back(), false};
  }

  void* sent_ = nullptr;
  void* received_ = nullptr;
  CUdeviceptr device_ = 0;
  CUstream stream_ = nullptr;
  std::vector<CUevent> events_;
};

void print_json(const Measurement& measurement) {
  std::printf(
      "{\"direction\":\"%s\",\"size_bytes\":%zu,\"gbps\":%.3f,\"slowest_gbps\":%.3f,"
      "\"fastest_gbps\":%.3f,\"verified\":%s}\n",
      measurement.direction, measurement.size_bytes, measurement.median_gbps,
      measurement.slowest_gbps, measurement.fastest_gbps, measurement.verified ? "true" : "false");
}

void print_row(const Measurement& measurement) {
  std::printf("%-4s %12zu bytes %9.1f GB/s (%.1f to %.1f)  %s\n", measurement.direction,
              measurement.size_bytes, measurement.median_gbps, measurement.slowest_gbps,
              measurement.fastest_gbps, measurement.verified ? "verified" : "WRONG BYTES");
}

bool measure(const Arguments& arguments) {
  Copier copier(*std::max_element(arguments.sizes.begin(), arguments.sizes.end()),
                arguments.repeat);
  bool all_verified = true;
  for (size_t size_bytes : arguments.sizes) {
    for (const Measurement& measurement :
         {copier.host_to_device(size_bytes), copier.device_to_host(size_bytes)}) {
      all_verified = all_verified && measurement.verified;
      arguments.json ? print_json(measurement) : print_row(measurement);
      std::fflush(stdout);
    }
  }
  return all_verified;
}

}  // namespace

int main(int argc, char** argv) {
  const Arguments arguments = parse_arguments(argc, argv);
  CHECK(cuInit(0));
  CUdevice device = 0;
  CHECK(cuDeviceGet(&device, arguments.device));
  char name[256] = {};
  CHECK(cuDeviceGetName(name, sizeof name, device));
  int count = 0;
  CHECK(cuDeviceGetCount(&count));
  std::printf(arguments.json ? "{\"gpu\":\"%s\",\"gpus\":%d}\n" : "%s, one of %d on this server\n",
              name, count);
  CUcontext context = nullptr;
  CHECK(cuDevicePrimaryCtxRetain(&context, device));
  CHECK(cuCtxSetCurrent(context));
  const bool all_verified = measure(arguments);
  CHECK(cuDevicePrimaryCtxRelease(device));
  return all_verified ? 0 : 1;
}
