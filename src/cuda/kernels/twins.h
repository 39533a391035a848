// The makers of the twins, for the table in twins.cpp.
#pragma once

#include <cstdint>
#include <memory>

#include "cuda/kernels/twin.h"

namespace braid::cuda {

std::unique_ptr<TwinBlock> make_pull_block(const void* args, uint32_t block_index);

}  // namespace braid::cuda
