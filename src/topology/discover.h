// Discovers the server that this process runs on: GPUs and peers from the CUDA driver, PCIe and
// NVLinks from NVML if present, NUMA nodes and PCIe switches from sysfs. Capacities are estimates;
// each names its basis.
#pragma once

#include "base/status.h"
#include "cuda/driver.h"
#include "topology/server.h"

namespace braid::topology {

/// Initialises the driver; makes no context. Fails when the driver shows no GPU.
Result<Server> discover(const cuda::Driver& driver);

}  // namespace braid::topology
