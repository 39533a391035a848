// Which names are those of CUDA's runtime library.
#include "lending/cudart_hooks.h"

#include <gtest/gtest.h>

namespace braid::lending {
namespace {

TEST(CudartNames, OnlyTheRuntimesAreLookedAt) {
  for (const char* name : {"cuInit", "cudnnCreate", "cuda", "cudart", "", "malloc"})
    EXPECT_FALSE(is_cudart_name(name)) << name;
  for (int id = 0; id < kCudartHookCount; ++id) {
    const char* const name = cudart_hooks()[static_cast<size_t>(id)];
    EXPECT_TRUE(is_cudart_name(name));
    EXPECT_EQ(find_cudart_symbol(name), static_cast<CudartHookId>(id));
  }
  EXPECT_EQ(find_cudart_symbol("cudaGetDevice"), std::nullopt);
}

}  // namespace
}  // namespace braid::lending
