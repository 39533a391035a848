// Contract: pages.h. Host twin, to be kept in step: pages_twin.cpp.
#include "cuda/kernels/pages.h"

#include "cuda/kernels/pull_vector.cuh"

using braid::cuda::Page;
using braid::cuda::PagesArgs;

extern "C" __global__ void __launch_bounds__(braid::cuda::kPagesThreads)
    braid_pages(const __grid_constant__ PagesArgs args) {
  const auto* pages = reinterpret_cast<const Page*>(args.pages);
  uint32_t number = blockIdx.x;
  if (number >= args.page_count) return;
  Page page = pages[number];
  while (true) {
    // The list lies in host memory: the next one comes while this page is copied.
    number += args.block_count;
    const bool has_next = number < args.page_count;
    Page next{};
    if (has_next) next = pages[number];
    braid::cuda::copy_slice(reinterpret_cast<char*>(page.destination),
                            reinterpret_cast<const char*>(page.source), page.size_bytes);
    if (!has_next) return;
    page = next;
  }
}
