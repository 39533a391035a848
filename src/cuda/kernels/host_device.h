// Code that both a kernel and its host twin call.
#pragma once

#ifdef __CUDACC__
#define BRAID_HOST_DEVICE __host__ __device__
#define BRAID_UNROLL _Pragma("unroll")
#else
#define BRAID_HOST_DEVICE
#define BRAID_UNROLL
#endif
