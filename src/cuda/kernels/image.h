// The kernels as one fat binary (SASS for several architectures, and PTX), for cuModuleLoadData.
#pragma once

namespace braid::cuda {

/// Lives as long as the process.
const void* pull_kernel_image();

}  // namespace braid::cuda
