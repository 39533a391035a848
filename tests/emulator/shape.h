// What the tests of copies of rows and layers share: memories of all kinds, random shapes in them,
// and the formulas of cuda.h that say where each byte goes.
#pragma once

#include <cstring>

#include "fixture.h"

namespace braid::emulator_test {

inline CUdeviceptr number(const void* address) { return reinterpret_cast<CUdeviceptr>(address); }

inline constexpr size_t kRoom = 64 << 10;

// Where the rows of one end lie, as a program would say it.
struct Rows {
  size_t pitch = 0;   // as passed: 0 for none
  size_t height = 0;  // of a layer, as passed
  size_t x = 0, y = 0, z = 0;
};

struct Block {
  size_t width = 0, height = 1, depth = 1;
};

// The formula of cuda.h, on bytes that the test holds itself.
inline size_t offset(const Rows& rows, const Block& block, size_t layer, size_t row) {
  const size_t pitch = rows.pitch != 0 ? rows.pitch : rows.x + block.width;
  const size_t height = rows.height != 0 ? rows.height : rows.y + block.height;
  return ((rows.z + layer) * height + rows.y + row) * pitch + rows.x;
}

inline void expect_copy(std::vector<uint8_t>& to, const Rows& to_rows,
                        const std::vector<uint8_t>& from, const Rows& from_rows,
                        const Block& block) {
  for (size_t layer = 0; layer < block.depth; ++layer)
    for (size_t row = 0; row < block.height; ++row)
      std::memcpy(to.data() + offset(to_rows, block, layer, row),
                  from.data() + offset(from_rows, block, layer, row), block.width);
}

// One memory: its address, and the name that it goes by in a copy.
struct Memory {
  CUmemorytype type;
  CUdeviceptr address;
  CUcontext context;
};

template <typename Params>
Params params_of(const Memory& to, const Rows& to_rows, const Memory& from, const Rows& from_rows,
                 const Block& block) {
  Params params{};
  params.srcMemoryType = from.type;
  params.dstMemoryType = to.type;
  if (from.type == CU_MEMORYTYPE_HOST)
    params.srcHost = reinterpret_cast<void*>(from.address);
  else
    params.srcDevice = from.address;
  if (to.type == CU_MEMORYTYPE_HOST)
    params.dstHost = reinterpret_cast<void*>(to.address);
  else
    params.dstDevice = to.address;
  params.srcXInBytes = from_rows.x;
  params.srcY = from_rows.y;
  params.srcPitch = from_rows.pitch;
  params.dstXInBytes = to_rows.x;
  params.dstY = to_rows.y;
  params.dstPitch = to_rows.pitch;
  params.WidthInBytes = block.width;
  params.Height = block.height;
  if constexpr (requires { params.srcZ; }) {
    params.srcZ = from_rows.z;
    params.srcHeight = from_rows.height;
    params.dstZ = to_rows.z;
    params.dstHeight = to_rows.height;
    params.Depth = block.depth;
  }
  if constexpr (requires { params.srcContext; }) {
    params.srcContext = from.context;
    params.dstContext = to.context;
  }
  return params;
}

struct Shape : testing::Test {
  Emulated server;
  CUcontext other = server.use(1);
  CUdeviceptr on_other = server.device_memory(kRoom);
  CUcontext context = server.use(0);
  CUstream stream = server.stream();
  std::vector<uint8_t> pageable = std::vector<uint8_t>(kRoom);
  CUdeviceptr device = server.device_memory(kRoom);
  CUdeviceptr second_device = server.device_memory(kRoom);
  uint8_t* pinned = server.pinned_memory(kRoom);
  std::vector<Memory> memories = {{CU_MEMORYTYPE_DEVICE, device, context},
                                  {CU_MEMORYTYPE_UNIFIED, second_device, context},
                                  {CU_MEMORYTYPE_DEVICE, on_other, other},
                                  {CU_MEMORYTYPE_HOST, number(pinned), context},
                                  {CU_MEMORYTYPE_HOST, number(pageable.data()), context}};

  void fill(CUdeviceptr to, const std::vector<uint8_t>& bytes) {
    const auto any = server.symbol<CUresult (*)(CUdeviceptr, CUdeviceptr, size_t)>("cuMemcpy");
    ASSERT_EQ(any(to, number(bytes.data()), bytes.size()), CUDA_SUCCESS);
  }
  std::vector<uint8_t> read(CUdeviceptr from) {
    const auto any = server.symbol<CUresult (*)(CUdeviceptr, CUdeviceptr, size_t)>("cuMemcpy");
    std::vector<uint8_t> bytes(kRoom);
    EXPECT_EQ(any(number(bytes.data()), from, kRoom), CUDA_SUCCESS);
    return bytes;
  }
};

struct RandomShape : Shape {
  const uint64_t seed = std::random_device{}();
  std::mt19937_64 random{seed};

  size_t below(size_t limit) { return random() % limit; }
  Block block(bool layers) { return {1 + below(90), 1 + below(9), layers ? 1 + below(6) : 1}; }
  // Rows that fit in kRoom, at a random place with or without gaps.
  Rows rows(const Block& of, bool layers) {
    Rows made;
    made.x = below(3) * below(40);
    made.y = below(3) * below(5);
    if (below(3) != 0) made.pitch = made.x + of.width + below(50);
    if (layers) made.z = below(3);
    if (layers && (of.depth > 1 || made.z > 0 || below(2) == 0))
      made.height = made.y + of.height + below(4);
    return made;
  }

  // Copies between all memories by `copy(to, to_rows, from, from_rows, block)`.
  template <typename Copy>
  void all_pairs(bool layers, Copy copy) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    for (const Memory& from : memories)
      for (const Memory& to : memories) {
        if (to.address == from.address) continue;
        for (int i = 0; i < 12; ++i) {
          const Block of = block(layers);
          const Rows to_rows = rows(of, layers);
          const Rows from_rows = rows(of, layers);
          const auto sent = random_bytes(kRoom, random());
          auto expected = random_bytes(kRoom, random());
          fill(from.address, sent);
          fill(to.address, expected);
          expect_copy(expected, to_rows, sent, from_rows, of);
          ASSERT_EQ(copy(to, to_rows, from, from_rows, of), CUDA_SUCCESS);
          ASSERT_TRUE(read(to.address) == expected);
        }
      }
  }
  // The same for an entry point and its asynchronous form.
  template <typename Params, typename Sync, typename Async>
  void both_forms(bool layers, Sync sync, Async async) {
    all_pairs(layers, [&](auto&&... with) {
      const auto params = params_of<Params>(with...);
      if (below(2) == 0) return sync(&params);
      const CUresult result = async(&params, stream);
      EXPECT_EQ(server.cu.cuStreamSynchronize(stream), CUDA_SUCCESS);
      return result;
    });
  }
};

}  // namespace braid::emulator_test
