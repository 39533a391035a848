// The server that this process runs on, as far as it can be found out: GPUs and peers from the CUDA
// driver, PCIe and NVLinks from NVML when it is there, NUMA nodes and PCIe switches from sysfs.
// Capacities are estimates, and each says what it rests on.
#pragma once

#include "base/status.h"
#include "cuda/driver.h"
#include "topology/server.h"

namespace braid::topology {

/// Initialises the driver; makes no context. Fails when the driver shows no GPU.
Result<Server> discover(const cuda::Driver& driver);

}  // namespace braid::topology
