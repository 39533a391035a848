#include "cudart_report.h"

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

namespace {

constexpr int kNumbers = 10;  // more than there are GPUs
constexpr size_t kSizeBytes = size_t{16} << 20;
constexpr size_t kPieceBytes = size_t{512} << 10;

void must(cudaError_t error, const char* doing) {
  if (error == cudaSuccess) return;
  std::fprintf(stderr, "client: %s: CUDA error %d\n", doing, static_cast<int>(error));
  std::_Exit(2);
}

// An answer, and what the same runtime's cudaGetLastError says of it.
void say(const Cudart& cudart, cudaError_t error) {
  std::printf(" %d/%d", static_cast<int>(error), static_cast<int>(cudart.cudaGetLastError()));
}

void ask_about(const Cudart& cudart, int number) {
  char address[32] = "";
  int value = -7;
  std::printf("%d:", number);
  say(cudart, cudart.cudaSetDevice(number));
  say(cudart, cudart.cudaSetValidDevices(&number, 1));
  say(cudart, cudart.cudaDeviceGetAttribute(&value, cudaDevAttrWarpSize, number));
  say(cudart, cudart.cudaDeviceGetPCIBusId(address, sizeof address, number));
  say(cudart, cudart.cudaDeviceCanAccessPeer(&value, 0, number));
  say(cudart, cudart.cudaDeviceCanAccessPeer(&value, number, 0));
  std::printf(" %d %s\n", value, address);
}

void ask_about(const Cudart& cudart, const char* address) {
  int number = -7;
  std::printf("%s:", address);
  say(cudart, cudart.cudaDeviceGetByPCIBusId(&number, address));
  std::printf(" %d\n", number);
}

void copy_and_look(const Cudart& cudart) {
  must(cudart.cudaSetDevice(0), "cudaSetDevice");
  void *host = nullptr, *device = nullptr;
  must(cudart.cudaMallocHost(&host, kSizeBytes), "cudaMallocHost");
  must(cudart.cudaMalloc(&device, kSizeBytes), "cudaMalloc");
  auto* words = static_cast<uint64_t*>(host);
  for (size_t at = 0; at < kSizeBytes / sizeof *words; ++at) words[at] = at * 0x9e3779b97f4a7c15u;
  must(cudart.cudaMemcpy(device, host, kSizeBytes, cudaMemcpyHostToDevice), "cudaMemcpy");
  std::vector<unsigned char> piece(kPieceBytes);
  for (size_t at = 0; at < kSizeBytes; at += kPieceBytes) {
    const auto* from = static_cast<const unsigned char*>(device) + at;
    must(cudart.cudaMemcpy(piece.data(), from, kPieceBytes, cudaMemcpyDeviceToHost), "cudaMemcpy");
    if (std::memcmp(piece.data(), static_cast<const unsigned char*>(host) + at, kPieceBytes) == 0)
      continue;
    std::fprintf(stderr, "client: wrong bytes\n");
    std::_Exit(1);
  }
}

}  // namespace

void report(const Cudart& cudart, char** words) {
  int version = 0, count = -7, chosen = -7;
  std::printf("first of all:");  // it starts the runtime
  say(cudart, cudart.cudaDeviceGetAttribute(&count, cudaDevAttrWarpSize, 1));
  must(cudart.cudaRuntimeGetVersion(&version), "cudaRuntimeGetVersion");
  std::printf("\nruntime %d, count", version);
  say(cudart, cudart.cudaGetDeviceCount(&count));
  std::printf(" %d\n", count);
  for (int number = -1; number < kNumbers; ++number) ask_about(cudart, number);
  for (; *words != nullptr; ++words) ask_about(cudart, *words);
  const cudaDeviceProp wishes{};
  std::printf("chosen:");
  say(cudart, cudart.cudaChooseDevice(&chosen, &wishes));
  std::printf(" %s\n", chosen < count ? "one of them" : "another");
  if (count > 0) copy_and_look(cudart);
  std::fflush(stdout);
}
