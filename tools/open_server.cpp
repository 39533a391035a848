#include "tools/open_server.h"

#include <cstdlib>

#include "base/try.h"
#include "tools/locate.h"
#include "topology/profile.h"

namespace braid::tools {

Result<cuda::Driver> open_server(const std::string& profile) {
  std::string library = "libcuda.so.1";
  if (!profile.empty()) {
    BRAID_LET(path, find_profile(profile));
    BRAID_TRY(topology::load_profile(path).status());  // says what is wrong with it
    setenv("BRAID_SERVER", path.c_str(), 1);
    BRAID_LET(emulator, find_emulated_driver());
    library = emulator.string();
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
