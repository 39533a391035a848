// The host twin of pages.cu.
#pragma once

#include "cuda/kernels/twin.h"

namespace braid::cuda {

std::unique_ptr<TwinBlock> make_pages_block(const void* args, uint32_t block_index);

}  // namespace braid::cuda
