// cuMemcpy3DBatchAsync in both its forms.
#include <cstring>

#include "shape.h"

namespace braid::emulator_test {
namespace {

using Batch3D = CUresult (*)(size_t, CUDA_MEMCPY3D_BATCH_OP*, size_t*, unsigned long long,
                             CUstream);
using Batch3DSecond = CUresult (*)(size_t, CUDA_MEMCPY3D_BATCH_OP*, unsigned long long, CUstream);

CUmemcpy3DOperand operand(const Memory& memory, const Rows& rows, const Block& block) {
  CUmemcpy3DOperand made{};
  made.type = CU_MEMCPY_OPERAND_TYPE_POINTER;
  made.op.ptr.ptr = memory.address + offset(rows, block, 0, 0);
  // Operands begin where the copy does, so what was packed with x and y must say its size.
  made.op.ptr.rowLength = rows.pitch != 0 ? rows.pitch : rows.x + block.width;
  made.op.ptr.layerHeight = rows.height != 0 ? rows.height : rows.y + block.height;
  return made;
}

CUDA_MEMCPY3D_BATCH_OP entry(const Memory& to, const Rows& to_rows, const Memory& from,
                             const Rows& from_rows, const Block& block) {
  CUDA_MEMCPY3D_BATCH_OP made{};
  made.src = operand(from, from_rows, block);
  made.dst = operand(to, to_rows, block);
  made.extent = {block.width, block.height, block.depth};
  made.srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_STREAM;
  return made;
}

TEST_F(RandomShape, Batches3DInBothForms) {
  const auto first = server.symbol<Batch3D>("cuMemcpy3DBatchAsync");
  const auto second = server.symbol<Batch3DSecond>("cuMemcpy3DBatchAsync_v2");
  all_pairs(true, [&](auto&&... with) {
    CUDA_MEMCPY3D_BATCH_OP op = entry(with...);
    size_t fail_index = 5;
    const CUresult result =
        below(2) == 0 ? first(1, &op, &fail_index, 0, stream) : second(1, &op, 0, stream);
    EXPECT_EQ(fail_index, 5u);
    EXPECT_EQ(server.cu.cuStreamSynchronize(stream), CUDA_SUCCESS);
    return result;
  });
}

TEST_F(Shape, PackedOperandsOfABatch) {
  const auto second = server.symbol<Batch3DSecond>("cuMemcpy3DBatchAsync_v2");
  const auto sent = random_bytes(kRoom, 1);
  fill(device, sent);
  std::memset(pinned, 0, kRoom);
  std::vector<CUDA_MEMCPY3D_BATCH_OP> ops;
  for (size_t i = 0; i < 8; ++i) {
    ops.push_back(entry({CU_MEMORYTYPE_HOST, number(pinned) + i * 100, context}, {},
                        {CU_MEMORYTYPE_DEVICE, device + i * 1000, context}, {}, {10, 5, 2}));
    ops.back().src.op.ptr.rowLength = ops.back().src.op.ptr.layerHeight = 0;
    ops.back().dst.op.ptr.rowLength = ops.back().dst.op.ptr.layerHeight = 0;
  }
  ASSERT_EQ(second(ops.size(), ops.data(), 0, stream), CUDA_SUCCESS);
  ASSERT_EQ(server.cu.cuStreamSynchronize(stream), CUDA_SUCCESS);
  for (size_t i = 0; i < 8; ++i)
    EXPECT_EQ(std::memcmp(pinned + i * 100, sent.data() + i * 1000, 100), 0);
  EXPECT_EQ(pinned[800], 0);
}

TEST_F(Shape, BatchErrorsNameTheirEntry) {
  const auto first = server.symbol<Batch3D>("cuMemcpy3DBatchAsync");
  const auto second = server.symbol<Batch3DSecond>("cuMemcpy3DBatchAsync_v2");
  const std::vector<CUDA_MEMCPY3D_BATCH_OP> good(
      3, entry(memories[3], {}, memories[0], {}, {8, 4, 2}));
  const auto broken = [&](const char* why, auto change, CUresult error = CUDA_ERROR_INVALID_VALUE) {
    for (size_t at = 0; at < good.size(); ++at) {
      auto ops = good;
      change(ops[at]);
      size_t fail_index = 5;
      EXPECT_EQ(first(3, ops.data(), &fail_index, 0, stream), error) << why;
      EXPECT_EQ(fail_index, at) << why;
      EXPECT_EQ(second(3, ops.data(), 0, stream), error) << why;
    }
  };
  broken("no width", [](auto& op) { op.extent.width = 0; });
  broken("no height", [](auto& op) { op.extent.height = 0; });
  broken("no depth", [](auto& op) { op.extent.depth = 0; });
  broken("a short row", [](auto& op) { op.src.op.ptr.rowLength = 7; });
  broken("a low layer", [](auto& op) { op.dst.op.ptr.layerHeight = 3; });
  broken("no order", [](auto& op) { op.srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_INVALID; });
  broken("unknown flags", [](auto& op) { op.flags = 4; });
  broken("no type", [](auto& op) { op.dst.type = static_cast<CUmemcpy3DOperandType>(0); });
  broken("beyond the end", [&](auto& op) { op.src.op.ptr.ptr = device + kRoom - 63; });
  broken("nowhere", [](auto& op) { op.dst.op.ptr.ptr = 0; });
  broken("too large a number", [](auto& op) { op.extent.depth = SIZE_MAX / 16; });
  broken(
      "an array", [](auto& op) { op.src.type = CU_MEMCPY_OPERAND_TYPE_ARRAY; },
      CUDA_ERROR_NOT_SUPPORTED);
  auto ops = good;
  size_t fail_index = 5;
  EXPECT_EQ(first(3, ops.data(), &fail_index, 1, stream), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(fail_index, SIZE_MAX);
  EXPECT_EQ(first(3, ops.data(), &fail_index, 0, nullptr), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(first(0, ops.data(), nullptr, 0, stream), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(second(3, nullptr, 0, stream), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(server.symbol<Batch3DSecond>("cuMemcpy3DBatchAsync_v2_ptsz")(3, ops.data(), 0, nullptr),
            CUDA_SUCCESS);
}

}  // namespace
}  // namespace braid::emulator_test
