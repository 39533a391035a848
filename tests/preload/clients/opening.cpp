// client_opening SCENARIO FILE: programs that go on while something opens beside them.
// They copy to GPU 0, and verify every byte, until braid's log in FILE says that it has carried
// one.
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>
#include <map>
#include <string>
#include <thread>

#include "client.h"

namespace {

using namespace client;

constexpr size_t kSizeBytes = (size_t{7} << 20) + 77;
constexpr int kMostCopies = 3000;
constexpr useconds_t kBetweenCopies_us = 10'000;

struct Buffers {
  uint8_t* host;
  CUdeviceptr device;
};

Buffers make_buffers() { return {pin(kSizeBytes), allocate(kSizeBytes)}; }

void copy_and_look(const Buffers& buffers, uint64_t seed) {
  Random(seed).fill(buffers.host, kSizeBytes);
  call("cuMemcpyHtoDAsync_v2", buffers.device, static_cast<const void*>(buffers.host), kSizeBytes,
       static_cast<CUstream>(nullptr));
  call("cuCtxSynchronize");
  std::vector<uint8_t> got(kSizeBytes);
  read_in_pieces(got.data(), buffers.device, kSizeBytes);
  require(std::equal(got.begin(), got.end(), buffers.host), "wrong bytes");
}

bool is_carried(const std::string& path, int gpu) {
  const std::string where = " gpu=" + std::to_string(gpu) + " ";
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);)
    if (line.find(where) != std::string::npos &&
        line.find("outcome=accelerated") != std::string::npos)
      return true;
  return false;
}

void copy_until_carried(const Buffers& buffers, const char* path, int gpu = 0) {
  for (uint64_t copy = 0; copy < kMostCopies; ++copy) {
    copy_and_look(buffers, copy);
    if (is_carried(path, gpu)) return;
    usleep(kBetweenCopies_us);
  }
  require(false, "no copy was carried");
}

bool is_active(CUdevice device) {
  unsigned flags = 0;
  int active = 0;
  call("cuDevicePrimaryCtxGetState", device, &flags, &active);
  return active != 0;
}

// Contexts that the program does not hold are inactive, whoever opens them and when.
int goes_on(const char* path) {
  use_gpu(0);
  const Buffers buffers = make_buffers();
  copy_until_carried(buffers, path);
  require(!is_active(1), "GPU 1 is active");
  return 0;
}

// The relay that only the second GPU's copies want opens when they come.
int another_gpu(const char* path) {
  use_gpu(0);
  const Buffers first = make_buffers();
  copy_until_carried(first, path);
  size_t before_bytes = 0, after_bytes = 0, total_bytes = 0;
  call("cuMemGetInfo_v2", &before_bytes, &total_bytes);
  use_gpu(1);
  copy_until_carried(make_buffers(), path, 1);
  use_gpu(0);
  call("cuMemGetInfo_v2", &after_bytes, &total_bytes);
  require(before_bytes - after_bytes > (size_t{100} << 20),
          "GPU 0 relayed before somebody wanted it");
  use_gpu(0);
  copy_until_carried(first, path);
  return 0;
}

int ends(const char*) {
  use_gpu(0);
  copy_and_look(make_buffers(), 2);
  return 3;
}

int ends_at_once(const char*) {
  use_gpu(0);
  copy_and_look(make_buffers(), 3);
  _exit(3);
}

int ends_elsewhere(const char*) {
  use_gpu(0);
  copy_and_look(make_buffers(), 8);
  std::thread([] { std::exit(3); }).join();
  return 0;
}

int forks(const char* path) {
  use_gpu(0);
  const Buffers buffers = make_buffers();
  copy_and_look(buffers, 4);
  const pid_t child = fork();
  if (child == 0) return 5;
  int status = 0;
  waitpid(child, &status, 0);
  require(WIFEXITED(status) && WEXITSTATUS(status) == 5, "the child did not end as it should");
  copy_until_carried(buffers, path);
  return 0;
}

// Pinned memory is made once, in a context that did not exist when the opening began.
int own_context(const char* path) {
  use_gpu(0);
  pin(1);
  CUdevice device = 0;
  CUcontext context = nullptr, gone = nullptr;
  call("cuDeviceGet", &device, 0);
  call("cuCtxCreate_v2", &gone, 0u, device);
  pin(1);
  call("cuCtxDestroy_v2", gone);
  call("cuCtxCreate_v2", &context, 0u, device);
  copy_until_carried(make_buffers(), path);
  return 0;
}

// A relay's context is the program's too, and the program resets it.
int resets(const char* path) {
  use_gpu(0);
  const Buffers buffers = make_buffers();
  CUdevice device = 0;
  call("cuDeviceGet", &device, 1);
  use_gpu(1);
  copy_and_look(make_buffers(), 6);
  call("cuDevicePrimaryCtxReset_v2", device);
  use_gpu(1);
  copy_and_look(make_buffers(), 7);
  use_gpu(0);
  copy_until_carried(buffers, path);
  return 0;
}

// Memory mapped for this GPU alone.
int maps(const char* path) {
  use_gpu(0);
  Buffers buffers{pin(kSizeBytes), 0};
  CUmemAllocationProp kind{};
  kind.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  kind.location = {CU_MEM_LOCATION_TYPE_DEVICE, {0}};
  constexpr size_t kMapped = size_t{8} << 20;
  CUmemGenericAllocationHandle memory = 0;
  call("cuMemAddressReserve", &buffers.device, kMapped, size_t{0}, CUdeviceptr{0}, 0ull);
  call("cuMemCreate", &memory, kMapped, static_cast<const CUmemAllocationProp*>(&kind), 0ull);
  call("cuMemMap", buffers.device, kMapped, size_t{0}, memory, 0ull);
  const CUmemAccessDesc access{kind.location, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
  call("cuMemSetAccess", buffers.device, kMapped, &access, size_t{1});
  copy_until_carried(buffers, path);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  const std::map<std::string, int (*)(const char*)> scenarios = {
      {"goes_on", goes_on},
      {"another_gpu", another_gpu},
      {"ends", ends},
      {"ends_at_once", ends_at_once},
      {"ends_elsewhere", ends_elsewhere},
      {"forks", forks},
      {"resets", resets},
      {"maps", maps},
      {"own_context", own_context},
  };
  const auto scenario = scenarios.find(argc > 2 ? argv[1] : "");
  require(use_lookup("dlsym"), "no driver");
  require(scenario != scenarios.end(), "no such scenario");
  return scenario->second(argv[2]);
}
