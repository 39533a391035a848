#include "cuda/kernels/image.h"

#include <cstdint>
#include <cstring>

extern "C" const unsigned char braid_pull_image[];
extern "C" const unsigned char braid_pages_image[];

namespace braid::cuda {

const void* pull_kernel_image() { return braid_pull_image; }
const void* pages_kernel_image() { return braid_pages_image; }

bool pull_kernels_are_built() {
  constexpr uint32_t kFatBinaryMagic = 0xba55ed50;
  return std::memcmp(braid_pull_image, &kFatBinaryMagic, sizeof kFatBinaryMagic) == 0;
}

}  // namespace braid::cuda
