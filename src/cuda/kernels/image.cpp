#include "cuda/kernels/image.h"

extern "C" const unsigned char braid_pull_image[];
extern "C" const unsigned char braid_gate_image[];

namespace braid::cuda {

const void* pull_kernel_image() { return braid_pull_image; }
const void* gate_kernel_image() { return braid_gate_image; }

}  // namespace braid::cuda
