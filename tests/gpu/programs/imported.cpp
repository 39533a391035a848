// Memory of another process: one allocates and exports it (legacy IPC), the other imports it,
// copies to and from it, and lets go.
//   imported SIZE_BYTES
#include <spawn.h>

#include "driver_program.h"

namespace {

using namespace program;

std::string as_text(const CUipcMemHandle& handle) {
  std::string text;
  char two[3];
  for (const char byte : handle.reserved) {
    std::snprintf(two, sizeof two, "%02x", static_cast<unsigned>(static_cast<unsigned char>(byte)));
    text += two;
  }
  return text;
}

CUipcMemHandle as_handle(const std::string& text) {
  CUipcMemHandle handle{};
  require(text.size() == 2 * sizeof handle.reserved, "not a handle");
  for (size_t at = 0; at < sizeof handle.reserved; ++at)
    handle.reserved[at] = static_cast<char>(std::stoi(text.substr(2 * at, 2), nullptr, 16));
  return handle;
}

// Reads what the other process wrote, and writes what it will look for.
int import_and_copy(size_t size_bytes, const std::string& handle) {
  use_gpus(1);
  const CUstream stream = new_stream();
  unsigned char* landing = pin(size_bytes);
  unsigned char* source = pin(size_bytes, Pattern(2));
  CUdeviceptr memory = 0, begin = 0;
  size_t found_bytes = 0;
  MUST(cuIpcOpenMemHandle(&memory, as_handle(handle), CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
  MUST(cuMemGetAddressRange(&begin, &found_bytes, memory));
  require(begin <= memory && begin + found_bytes >= memory + size_bytes, "another range came");
  to_host(landing, memory, size_bytes, stream, Kind::kImported);
  to_device(memory, source, size_bytes, stream, Kind::kImported);
  MUST(cuStreamSynchronize(stream));
  MUST(cuIpcCloseMemHandle(memory));
  Pattern(1).check(landing, size_bytes, "imported memory");
  print_counts();
  return 0;
}

pid_t start(std::vector<std::string> words) {
  std::vector<char*> pointers;
  for (std::string& word : words) pointers.push_back(word.data());
  pointers.push_back(nullptr);
  pid_t child = 0;
  require(posix_spawn(&child, "/proc/self/exe", nullptr, nullptr, pointers.data(), environ) == 0,
          "posix_spawn");
  return child;
}

}  // namespace

int main(int argc, char** argv) {
  const size_t size_bytes = size_argument(argc, argv);
  if (argc > 2) return import_and_copy(size_bytes, argv[2]);
  use_gpus(1);
  const CUstream stream = new_stream();
  unsigned char* source = pin(size_bytes, Pattern(1));
  unsigned char* landing = pin(size_bytes);
  const CUdeviceptr memory = allocate(size_bytes);
  CUipcMemHandle handle{};
  MUST(cuIpcGetMemHandle(&handle, memory));
  to_device(memory, source, size_bytes, stream);  // exported or not, it is this process's own
  MUST(cuStreamSynchronize(stream));
  const pid_t child = start({argv[0], argv[1], as_text(handle)});
  require(exit_code_of(child, "the process that imports") == 0, "the process that imports failed");
  to_host(landing, memory, size_bytes, stream);
  MUST(cuStreamSynchronize(stream));
  Pattern(2).check(landing, size_bytes, "exported memory");
  print_counts();
  return 0;
}
