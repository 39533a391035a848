// client_asking BRAID: a copy waits behind a stream that this program holds, and the program asks
// the command BRAID what it waits for; then it has braid switched off for one copy.
#include <unistd.h>

#include <string>

#include "client.h"

namespace {

using namespace client;

constexpr size_t kSizeBytes = size_t{64} << 20;

std::string braid;

void ask(const std::string& words) {
  std::fflush(stdout);
  const std::string line = "env -u LD_PRELOAD '" + braid + "' " + words;
  require(std::system(line.c_str()) == 0, line.c_str());
}

void copy(CUdeviceptr to, const uint8_t* from, CUstream stream) {
  call("cuMemcpyHtoDAsync_v2", to, static_cast<const void*>(from), kSizeBytes, stream);
}

}  // namespace

int main(int, char** words) {
  braid = words[1];
  const std::string pid = std::to_string(getpid());
  require(use_lookup("dlsym"), "no driver");
  use_gpu(0);
  uint8_t* host = pin(kSizeBytes);
  auto* word = reinterpret_cast<volatile uint32_t*>(pin(sizeof(uint32_t)));
  *word = 0;
  const CUdeviceptr device = allocate(kSizeBytes);
  CUstream stream = nullptr;
  call("cuStreamCreate", &stream, static_cast<unsigned>(CU_STREAM_NON_BLOCKING));
  ask("waits " + pid);
  call("cuStreamWaitValue32_v2", stream, reinterpret_cast<CUdeviceptr>(word), cuuint32_t{1},
       static_cast<unsigned>(CU_STREAM_WAIT_VALUE_GEQ));
  copy(device, host, stream);
  ask("waits " + pid);
  *word = 1;
  call("cuStreamSynchronize", stream);
  ask("waits " + pid);
  ask("switch off " + pid);
  ask("ps | grep -w " + pid);
  copy(device, host, stream);
  call("cuStreamSynchronize", stream);
  ask("switch on " + pid);
  copy(device, host, stream);
  call("cuStreamSynchronize", stream);
  return 0;
}
