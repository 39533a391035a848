#include "cuda/kernels/image.h"

extern "C" const unsigned char braid_pull_image[];

namespace braid::cuda {

const void* pull_kernel_image() { return braid_pull_image; }

}  // namespace braid::cuda
