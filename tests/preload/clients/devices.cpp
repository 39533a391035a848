// A program that asks everything there is to ask about the GPUs, and then copies to the first one:
// devices LOOKUP [PCI_BUS_ID ...]. What it prints must not depend on GPUs that it is not to see.
#include <cstring>
#include <string>

#include "client.h"

namespace {

using namespace client;

constexpr int kNumbers = 10;  // more than there are GPUs
constexpr size_t kSizeBytes = size_t{64} << 20;

template <typename... Arguments>
int answer(const char* symbol, Arguments... arguments) {
  return static_cast<int>(get<CUresult(Arguments...)>(symbol)(arguments...));
}

void print_environment() {
  const char* visible = std::getenv("CUDA_VISIBLE_DEVICES");
  std::printf("CUDA_VISIBLE_DEVICES %s\n", visible != nullptr ? visible : "unset");
}

void ask_about(CUdevice number) {
  CUdevice device = -7;
  char text[64] = "";
  CUuuid uuid{};
  size_t bytes = 0;
  int value = 0;
  int minor = 0;
  unsigned flags = 0;
  CUdevprop properties{};
  CUcontext context = nullptr;
  std::printf("%d:", number);
  const auto say = [](int result) { std::printf(" %d", result); };
  say(answer("cuDeviceGet", &device, number));
  say(device);
  say(answer("cuDeviceGet", static_cast<CUdevice*>(nullptr), number));
  say(answer("cuDeviceGetName", text, static_cast<int>(sizeof text), number));
  say(answer("cuDeviceGetUuid_v2", &uuid, number));
  say(uuid.bytes[15]);
  say(answer("cuDeviceTotalMem_v2", &bytes, number));
  say(answer("cuDeviceGetAttribute", &value, CU_DEVICE_ATTRIBUTE_WARP_SIZE, number));
  say(answer("cuDeviceGetProperties", &properties, number));
  say(answer("cuDeviceComputeCapability", &value, &minor, number));
  say(answer("cuDeviceGetPCIBusId", text, static_cast<int>(sizeof text), number));
  say(answer("cuDeviceCanAccessPeer", &value, 0, number));
  say(answer("cuDeviceCanAccessPeer", &value, number, 0));
  say(answer("cuDeviceGetP2PAttribute", &value, CU_DEVICE_P2P_ATTRIBUTE_ACCESS_SUPPORTED, 0,
             number));
  say(answer("cuDevicePrimaryCtxGetState", number, &flags, &value));
  say(answer("cuDevicePrimaryCtxSetFlags_v2", number, 0u));
  const int retained = answer("cuDevicePrimaryCtxRetain", &context, number);
  say(retained);
  if (retained == CUDA_SUCCESS) say(answer("cuDevicePrimaryCtxRelease_v2", number));
  std::printf(" %s\n", text);
}

// A GPU that the program does not hold must not be released or reset by a guess either.
void misuse(CUdevice number) {
  CUcontext context = nullptr;
  std::printf("%d: %d %d %d\n", number, answer("cuDevicePrimaryCtxRelease_v2", number),
              answer("cuDevicePrimaryCtxReset_v2", number),
              answer("cuCtxCreate_v2", &context, 0u, number));
}

void copy_and_look(int count) {
  use_gpu(0);
  uint8_t* host = pin(kSizeBytes);
  Random(1).fill(host, kSizeBytes);
  const CUdeviceptr device = allocate(kSizeBytes);
  for (CUdevice number = count; number < kNumbers; ++number) misuse(number);
  call("cuMemcpyHtoD_v2", device, static_cast<const void*>(host), kSizeBytes);
  std::vector<uint8_t> got(kSizeBytes);
  read_in_pieces(got.data(), device, kSizeBytes);
  require(std::memcmp(got.data(), host, kSizeBytes) == 0, "wrong bytes");
}

}  // namespace

int main(int argc, char** argv) {
  require(argc > 1 && use_lookup(argv[1]), "no such lookup");
  print_environment();
  const int started = answer("cuInit", 0u);
  std::printf("cuInit %d, again %d\n", started, answer("cuInit", 0u));
  print_environment();
  int count = -1;
  std::printf("count %d", answer("cuDeviceGetCount", &count));
  std::printf(" %d\n", count);
  for (CUdevice number = -1; number < kNumbers; ++number) ask_about(number);
  for (int word = 2; word < argc; ++word) {
    CUdevice device = -7;
    const int result =
        answer("cuDeviceGetByPCIBusId", &device, static_cast<const char*>(argv[word]));
    std::printf("%s %d %d\n", argv[word], result, device);
  }
  if (count > 0) copy_and_look(count);
  return 0;
}
