// The contract of the kernel that copies many pages between GPUs in one launch. A separate driver
// copy costs as much as moving a page of a megabyte over NVLink.
//
// The blocks take the pages in turns, so pages of one size end together. Sources and destinations
// may have any alignment; they must not overlap. All pages have landed when the kernel has ended.
#pragma once

#include <cstdint>

namespace braid::cuda {

struct Page {
  uint64_t source = 0;
  uint64_t destination = 0;
  uint64_t size_bytes = 0;
};

/// The kernel's one argument.
struct PagesArgs {
  uint64_t pages = 0;       ///< const Page*, which the GPU reads
  uint32_t page_count = 0;  ///< 0: nothing is done
  uint32_t block_count = 0;
};

inline constexpr const char* kPagesKernelName = "braid_pages";
inline constexpr uint32_t kPagesThreads = 512;

}  // namespace braid::cuda
