#include "cuda/kernels/twins.h"

#include <array>

#include "cuda/kernels/pull.h"

namespace braid::cuda {
namespace {

// The two pull kernels differ in how a slice's bytes move, which is the caller's business here.
constexpr std::array kTwins = {Twin{kVectorKernelName, sizeof(PullArgs), make_pull_block},
                               Twin{kBulkKernelName, sizeof(PullArgs), make_pull_block}};

}  // namespace

std::span<const Twin> twins() { return kTwins; }

}  // namespace braid::cuda
