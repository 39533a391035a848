// Words that tell their place and a seed, filled and checked by kernels or by several threads.
#pragma once

#include <thread>
#include <vector>

#include "program.h"

namespace program {

constexpr int kThreads = 8;

__host__ __device__ inline uint64_t word_at(uint64_t seed, size_t index) {
  const uint64_t word = (seed * 0x9e3779b97f4a7c15u + index) * 0xbf58476d1ce4e5b9u;
  return word ^ (word >> 29);
}

__global__ void fill_words(uint64_t* words, size_t count, uint64_t seed) {
  for (size_t at = blockIdx.x * size_t{blockDim.x} + threadIdx.x; at < count;
       at += size_t{gridDim.x} * blockDim.x)
    words[at] = word_at(seed, at);
}

__global__ void count_wrong(const uint64_t* words, size_t count, uint64_t seed,
                            unsigned long long* wrong) {
  for (size_t at = blockIdx.x * size_t{blockDim.x} + threadIdx.x; at < count;
       at += size_t{gridDim.x} * blockDim.x)
    if (words[at] != word_at(seed, at)) atomicAdd(wrong, 1ull);
}

/// `work(from, to)` for all words of host memory, by several threads.
template <typename Work>
void in_parts(size_t count, Work work) {
  std::vector<std::thread> threads;
  for (size_t part = 0; part < kThreads; ++part)
    threads.emplace_back([=] { work(count * part / kThreads, count * (part + 1) / kThreads); });
  for (std::thread& thread : threads) thread.join();
}

}  // namespace program
