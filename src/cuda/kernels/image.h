// The kernels as fat binaries (SASS for several architectures, and PTX), for cuModuleLoadData.
#pragma once

namespace braid::cuda {

/// The pull kernels (pull.h). They live as long as the process.
const void* pull_kernel_image();

/// The kernel that copies pages (pages.h). It lives as long as the process.
const void* pages_kernel_image();

/// False in a build without nvcc, whose image only emulated servers load.
bool pull_kernels_are_built();

}  // namespace braid::cuda
