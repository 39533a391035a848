// The kernels as fat binaries (SASS for several architectures, and PTX), for cuModuleLoadData.
#pragma once

namespace braid::cuda {

/// The pull kernels (pull.h), and the gate's (gate.h). They live as long as the process.
const void* pull_kernel_image();
const void* gate_kernel_image();

}  // namespace braid::cuda
