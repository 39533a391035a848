#include "tools/open_server.h"

#include <cstdlib>

#include "tools/locate.h"
#include "topology/profile.h"

namespace braid::tools {

Result<cuda::Driver> open_server(const std::string& profile) {
  std::string library = "libcuda.so.1";
  if (!profile.empty()) {
    const auto path = find_profile(profile);
    if (!path.ok()) return path.status();
    const auto server = topology::load_profile(path.value());  // says what is wrong with it
    if (!server.ok()) return server.status();
    setenv("BRAID_SERVER", path.value().c_str(), 1);
    const auto emulator = find_emulated_driver();
    if (!emulator.ok()) return emulator.status();
    library = emulator.value().string();
  }
  auto driver = cuda::open_driver(library);
  if (!driver.ok()) return driver;
  const cuda::Driver& cuda = driver.value();
  int gpus = 0;
  Status status = cuda.check(cuda.cuInit(0), "starting the CUDA driver");
  if (status.ok()) status = cuda.check(cuda.cuDeviceGetCount(&gpus), "counting the GPUs");
  if (status.ok() && gpus == 0) status = Status::error("the CUDA driver shows no GPU");
  if (!status.ok())
    return Status::error(status.message(),
                         profile.empty() ? "Use an emulated server instead: --server h20x8" : "");
  return driver;
}

}  // namespace braid::tools
