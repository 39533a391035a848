// Copies and memsets of rows and layers: every byte and every gap, and the documented errors.
#include <cstring>

#include "gate.h"
#include "shape.h"

namespace braid::emulator_test {
namespace {

using Copy2D = CUresult (*)(const CUDA_MEMCPY2D*);
using Copy2DAsync = CUresult (*)(const CUDA_MEMCPY2D*, CUstream);
using Copy3D = CUresult (*)(const CUDA_MEMCPY3D*);
using Copy3DAsync = CUresult (*)(const CUDA_MEMCPY3D*, CUstream);
using Copy3DPeer = CUresult (*)(const CUDA_MEMCPY3D_PEER*);
using Copy3DPeerAsync = CUresult (*)(const CUDA_MEMCPY3D_PEER*, CUstream);
TEST_F(RandomShape, Copies2D) {
  both_forms<CUDA_MEMCPY2D>(false, server.symbol<Copy2D>("cuMemcpy2D_v2"),
                            server.symbol<Copy2DAsync>("cuMemcpy2DAsync_v2"));
}

TEST_F(RandomShape, Copies2DUnalignedAndPerThread) {
  both_forms<CUDA_MEMCPY2D>(false, server.symbol<Copy2D>("cuMemcpy2DUnaligned_v2_ptds"),
                            server.symbol<Copy2DAsync>("cuMemcpy2DAsync_v2_ptsz"));
}

TEST_F(RandomShape, Copies3D) {
  both_forms<CUDA_MEMCPY3D>(true, server.symbol<Copy3D>("cuMemcpy3D_v2"),
                            server.symbol<Copy3DAsync>("cuMemcpy3DAsync_v2"));
}

TEST_F(RandomShape, Copies3DBetweenContexts) {
  both_forms<CUDA_MEMCPY3D_PEER>(true, server.symbol<Copy3DPeer>("cuMemcpy3DPeer"),
                                 server.symbol<Copy3DPeerAsync>("cuMemcpy3DPeerAsync"));
}

TEST_F(Shape, ErrorsOf2DAnd3D) {
  const auto copy2d = server.symbol<Copy2D>("cuMemcpy2D_v2");
  const auto copy2d_async = server.symbol<Copy2DAsync>("cuMemcpy2DAsync_v2");
  const auto copy3d = server.symbol<Copy3D>("cuMemcpy3D_v2");
  const auto good2d = params_of<CUDA_MEMCPY2D>(memories[0], {100, 0, 10, 1, 0}, memories[3],
                                               {100, 0, 10, 1, 0}, {80, 10, 1});
  const auto good3d = params_of<CUDA_MEMCPY3D>(memories[0], {100, 20, 10, 1, 1}, memories[3],
                                               {100, 20, 10, 1, 1}, {80, 10, 3});
  ASSERT_EQ(copy2d(&good2d), CUDA_SUCCESS);
  ASSERT_EQ(copy3d(&good3d), CUDA_SUCCESS);
  // Each change to either struct, by the members that both have.
  const auto broken = [&](const char* why, auto change, CUresult error = CUDA_ERROR_INVALID_VALUE) {
    auto two = good2d;
    auto three = good3d;
    change(two);
    change(three);
    EXPECT_EQ(copy2d(&two), error) << why;
    EXPECT_EQ(copy2d_async(&two, stream), error) << why;
    EXPECT_EQ(copy3d(&three), error) << why;
  };
  broken("no type", [](auto& with) { with.srcMemoryType = static_cast<CUmemorytype>(0); });
  broken("unknown type", [](auto& with) { with.dstMemoryType = static_cast<CUmemorytype>(5); });
  broken(
      "an array", [](auto& with) { with.dstMemoryType = CU_MEMORYTYPE_ARRAY; },
      CUDA_ERROR_NOT_SUPPORTED);
  broken("a short pitch", [](auto& with) { with.srcPitch = 89; });
  broken("a short pitch", [](auto& with) { with.dstPitch = 89; });
  broken("beyond the end", [](auto& with) { with.srcY = 649; });
  broken("beyond the end", [](auto& with) { with.dstY = 10'000; });
  broken("too large a number", [](auto& with) { with.Height = SIZE_MAX / 64; });
  broken("too large a number", [](auto& with) { with.dstXInBytes = SIZE_MAX - 3; });
  broken("null", [](auto& with) { with.dstDevice = 0; });
  broken("device memory as host memory",
         [&](auto& with) { with.srcHost = reinterpret_cast<void*>(device); });
  broken("host memory that CUDA does not know, as device memory",
         [&](auto& with) { with.dstDevice = number(pageable.data()); });
  const auto broken3d = [&](const char* why, auto change) {
    auto three = good3d;
    change(three);
    EXPECT_EQ(copy3d(&three), CUDA_ERROR_INVALID_VALUE) << why;
  };
  broken3d("a low layer", [](auto& with) { with.srcHeight = 10; });
  broken3d("several layers of no height", [](auto& with) { with.dstHeight = 0; });
  broken3d("level of detail", [](auto& with) { with.srcLOD = 1; });
  broken3d("level of detail", [](auto& with) { with.dstLOD = 1; });
  broken3d("reserved", [](auto& with) { with.reserved0 = &with; });
  broken3d("reserved", [](auto& with) { with.reserved1 = &with; });
  broken3d("beyond the end", [](auto& with) { with.srcZ = 32; });
  EXPECT_EQ(copy2d(nullptr), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(copy3d(nullptr), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(copy2d_async(&good2d, reinterpret_cast<CUstream>(0x77)), CUDA_ERROR_INVALID_HANDLE);
  auto one_row = good2d;
  one_row.Height = 1;
  one_row.dstY = 0;
  one_row.dstPitch = (size_t{1} << 31) - 1;
  EXPECT_EQ(copy2d(&one_row), CUDA_SUCCESS);
  ++one_row.dstPitch;  // above CU_DEVICE_ATTRIBUTE_MAX_PITCH
  EXPECT_EQ(copy2d(&one_row), CUDA_ERROR_INVALID_VALUE);
  auto nothing = good2d;
  nothing.Height = 0;
  nothing.dstDevice = 0;
  EXPECT_EQ(copy2d(&nothing), CUDA_SUCCESS);
}

TEST_F(Shape, PeerCopiesNameTheirContexts) {
  const auto copy = server.symbol<Copy3DPeer>("cuMemcpy3DPeer");
  auto params = params_of<CUDA_MEMCPY3D_PEER>(memories[2], {}, memories[0], {}, {80, 1, 1});
  EXPECT_EQ(copy(&params), CUDA_SUCCESS);
  params.srcContext = nullptr;
  EXPECT_EQ(copy(&params), CUDA_ERROR_INVALID_CONTEXT);
  params.srcContext = context;
  params.dstContext = reinterpret_cast<CUcontext>(0x99);
  EXPECT_EQ(copy(&params), CUDA_ERROR_INVALID_CONTEXT);
}

TEST_F(Shape, PitchedMemoryTakesAndGivesAnImage) {
  CUdeviceptr image = 0;
  size_t pitch = 0;
  const auto allocate =
      server.symbol<CUresult (*)(CUdeviceptr*, size_t*, size_t, size_t, unsigned)>(
          "cuMemAllocPitch_v2");
  ASSERT_EQ(allocate(&image, &pitch, 300, 50, 4), CUDA_SUCCESS);
  EXPECT_GE(pitch, 300u);
  EXPECT_EQ(allocate(&image, &pitch, 300, 50, 3), CUDA_ERROR_INVALID_VALUE);
  const auto sent = random_bytes(kRoom, 5);
  std::memcpy(pinned, sent.data(), kRoom);
  const Memory host{CU_MEMORYTYPE_HOST, number(pinned), context};
  const Memory pitched{CU_MEMORYTYPE_DEVICE, image, context};
  const auto copy = server.symbol<Copy2DAsync>("cuMemcpy2DAsync_v2");
  const auto up = params_of<CUDA_MEMCPY2D>(pitched, {pitch}, host, {300}, {300, 50, 1});
  const auto down = params_of<CUDA_MEMCPY2D>(host, {301}, pitched, {pitch}, {300, 50, 1});
  ASSERT_EQ(copy(&up, stream), CUDA_SUCCESS);
  ASSERT_EQ(copy(&down, stream), CUDA_SUCCESS);
  ASSERT_EQ(server.cu.cuStreamSynchronize(stream), CUDA_SUCCESS);
  for (size_t row = 0; row < 50; ++row)
    ASSERT_EQ(std::memcmp(pinned + row * 301, sent.data() + row * 300, 300), 0) << row;
}

TEST_F(Shape, PageableRowsAreStagedAtTheCall) {
  const auto sent = random_bytes(kRoom, 6);
  fill(device, std::vector<uint8_t>(kRoom, 0));
  pageable = sent;
  memories[4].address = number(pageable.data());
  Gate gate(server);
  gate.close(stream);
  const auto copy = server.symbol<Copy2DAsync>("cuMemcpy2DAsync_v2");
  const Rows rows{100, 0, 3, 1, 0};
  const auto params = params_of<CUDA_MEMCPY2D>(memories[0], rows, memories[4], rows, {90, 20, 1});
  ASSERT_EQ(copy(&params, stream), CUDA_SUCCESS);
  EXPECT_EQ(server.cu.cuStreamQuery(stream), CUDA_ERROR_NOT_READY);
  std::fill(pageable.begin(), pageable.end(), 0xee);
  gate.open();
  ASSERT_EQ(server.cu.cuStreamSynchronize(stream), CUDA_SUCCESS);
  std::vector<uint8_t> expected(kRoom, 0);
  expect_copy(expected, rows, sent, rows, {90, 20, 1});
  EXPECT_TRUE(read(device) == expected);
}

TEST_F(Shape, CapturesRecordItAndMemoryThatGoesIsAFault) {
  const auto begin =
      server.symbol<CUresult (*)(CUstream, CUstreamCaptureMode)>("cuStreamBeginCapture_v2");
  const auto end = server.symbol<CUresult (*)(CUstream, CUgraph*)>("cuStreamEndCapture");
  const auto copy = server.symbol<Copy2D>("cuMemcpy2D_v2");
  const auto copy_async = server.symbol<Copy2DAsync>("cuMemcpy2DAsync_v2");
  const auto params = params_of<CUDA_MEMCPY2D>(memories[0], {}, memories[3], {}, {16, 2, 1});
  std::memset(pinned, 1, kRoom);
  ASSERT_EQ(server.cu.cuMemsetD8(device, 0, kRoom), CUDA_SUCCESS);
  ASSERT_EQ(begin(stream, CU_STREAM_CAPTURE_MODE_GLOBAL), CUDA_SUCCESS);
  EXPECT_EQ(copy_async(&params, stream), CUDA_SUCCESS);
  CUgraph graph = nullptr;
  EXPECT_EQ(end(stream, &graph), CUDA_SUCCESS);
  EXPECT_EQ(read(device), std::vector<uint8_t>(kRoom, 0));
  ASSERT_EQ(begin(stream, CU_STREAM_CAPTURE_MODE_GLOBAL), CUDA_SUCCESS);
  EXPECT_EQ(copy(&params), CUDA_SUCCESS) << "in a stream that is not recorded";
  EXPECT_EQ(end(stream, &graph), CUDA_SUCCESS);
  // cuMemFree waits for the context of the memory, not for that of the stream.
  server.use(1);
  CUstream elsewhere = server.stream();
  Gate gate(server);
  gate.close(elsewhere);
  ASSERT_EQ(copy_async(&params, elsewhere), CUDA_SUCCESS);
  ASSERT_EQ(server.cu.cuCtxSetCurrent(context), CUDA_SUCCESS);
  ASSERT_EQ(server.cu.cuMemFree(device), CUDA_SUCCESS);
  gate.open();
  EXPECT_EQ(server.cu.cuStreamSynchronize(elsewhere), CUDA_ERROR_ILLEGAL_ADDRESS);
}

template <typename Element>
void fills_rows(Shape& test, const std::string& bits, Element value) {
  using Fill = CUresult (*)(CUdeviceptr, size_t, Element, size_t, size_t);
  using FillAsync = CUresult (*)(CUdeviceptr, size_t, Element, size_t, size_t, CUstream);
  Emulated& server = test.server;
  const auto now = server.symbol<Fill>(("cuMemsetD2D" + bits + "_v2").c_str());
  const auto async = server.symbol<FillAsync>(("cuMemsetD2D" + bits + "Async").c_str());
  auto expected = random_bytes(kRoom, 8);
  test.fill(test.device, expected);
  const auto expect = [&](size_t start, size_t pitch, size_t count, size_t rows) {
    for (size_t row = 0; row < rows; ++row)
      for (size_t i = 0; i < count; ++i)
        std::memcpy(expected.data() + start + row * pitch + i * sizeof(Element), &value,
                    sizeof(Element));
  };
  ASSERT_EQ(now(test.device + 16, 128, value, 10, 7), CUDA_SUCCESS);
  expect(16, 128, 10, 7);
  ASSERT_EQ(async(test.device + 8192, 64, value, 16, 3, test.stream), CUDA_SUCCESS);
  expect(8192, 64, 16, 3);
  ASSERT_EQ(now(test.device + 32768, 1, value, 5, 1), CUDA_SUCCESS);  // one row: no pitch
  expect(32768, 0, 5, 1);
  ASSERT_EQ(server.cu.cuStreamSynchronize(test.stream), CUDA_SUCCESS);
  EXPECT_TRUE(test.read(test.device) == expected) << bits;
  EXPECT_EQ(now(test.device, 128, value, 0, 7), CUDA_SUCCESS);
  EXPECT_EQ(now(test.device, 128, value, 10, 1000), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(now(test.device, 4, value, 10, 2), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(now(test.device, 0, value, 10, 2), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(now(test.device, SIZE_MAX & ~size_t{15}, value, 10, 3), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(now(test.device, 128, value, SIZE_MAX, 2), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(now(0, 128, value, 10, 2), CUDA_ERROR_INVALID_VALUE);
  if (sizeof(Element) == 1) return;
  EXPECT_EQ(now(test.device + 1, 128, value, 10, 2), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(async(test.device, 129, value, 10, 2, test.stream), CUDA_ERROR_INVALID_VALUE);
}

TEST_F(Shape, Memsets) {
  fills_rows<unsigned char>(*this, "8", 0xa1);
  fills_rows<unsigned short>(*this, "16", 0xb2c3);
  fills_rows<unsigned>(*this, "32", 0xd4e5f607);
}

// A copy of rows is as fast as a linear one of as many bytes.
TEST_F(Shape, BandwidthIsThatOfTheBytes) {
  constexpr size_t kSize = 64 << 20;
  const Memory host{CU_MEMORYTYPE_HOST, number(server.pinned_memory(2 * kSize)), context};
  const Memory on_gpu{CU_MEMORYTYPE_DEVICE, server.device_memory(kSize), context};
  const auto copy = server.symbol<Copy2DAsync>("cuMemcpy2DAsync_v2");
  const auto params =
      params_of<CUDA_MEMCPY2D>(on_gpu, {}, host, {2 << 10}, {1 << 10, kSize >> 10, 1});
  const auto timed = [&](auto enqueue) {
    CUevent start = server.recorded(stream);
    EXPECT_EQ(enqueue(), CUDA_SUCCESS);
    CUevent end = server.recorded(stream);
    EXPECT_EQ(server.cu.cuStreamSynchronize(stream), CUDA_SUCCESS);
    return server.elapsed_us(start, end);
  };
  const double shaped = timed([&] { return copy(&params, stream); });
  const double linear = timed(
      [&] { return server.cu.cuMemcpyHtoDAsync(on_gpu.address, params.srcHost, kSize, stream); });
  EXPECT_NEAR(shaped, linear, 0.1);
}

}  // namespace
}  // namespace braid::emulator_test
