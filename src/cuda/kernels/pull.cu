#include "cuda/kernels/pull.h"
extern "C" __global__ void braid_pull(const __grid_constant__ braid::cuda::PullArgs args) {}
