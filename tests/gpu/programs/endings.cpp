// Processes that end in every way with copies in flight: each ends, and with its own exit code.
//   endings SIZE_BYTES
#include "driver_program.h"

namespace {

using namespace program;

using Ending = void (*)(int);

struct Way {
  const char* name;
  Ending end;
};

const Way kWays[] = {
    {"exit", [](int status) { std::exit(status); }},
    {"_exit", [](int status) { _exit(status); }},
    {"quick_exit", [](int status) { std::quick_exit(status); }},
    {"exit in another thread",
     [](int status) { std::thread([status] { std::exit(status); }).join(); }},
};

void copy_and_end(size_t size_bytes, Ending end, int status) {
  use_gpus(1);
  const CUstream streams[] = {new_stream(), new_stream()};
  unsigned char* source = pin(size_bytes);
  unsigned char* landing = pin(size_bytes);
  const CUdeviceptr device = allocate(size_bytes);
  for (int copy = 0; copy < 8; ++copy) {
    to_device(device, source, size_bytes, streams[0]);
    to_host(landing, device, size_bytes, streams[1]);
  }
  print_counts();
  end(status);
}

}  // namespace

int main(int argc, char** argv) {
  const size_t size_bytes = size_argument(argc, argv);
  std::vector<pid_t> children;  // side by side: each needs seconds to start
  int status = 3;
  for (const Way& way : kWays) {
    const pid_t child = fork();
    require(child >= 0, "fork");
    if (child == 0) copy_and_end(size_bytes, way.end, status);
    children.push_back(child);
    ++status;
  }
  status = 3;
  for (const Way& way : kWays) {
    const pid_t child = children[static_cast<size_t>(status - 3)];
    require(exit_code_of(child, way.name) == status, std::string(way.name) + ": wrong exit code");
    ++status;
  }
  return 0;
}
