// Batches in time: their order in the stream, when sources are read, what memory that goes away
// does, captures, and what entries cost.
#include <cstring>

#include "batch.h"
#include "cuda/kernels/image.h"
#include "cuda/kernels/pull.h"

namespace braid::emulator_test {
namespace {

TEST_F(Batch, ItRunsInTheStreamsOrder) {
  const CUdeviceptr device = server.device_memory(64);
  uint8_t* up = server.pinned_memory(64);
  uint8_t* down = server.pinned_memory(64);
  std::memset(up, 5, 64);
  std::memset(down, 0, 64);
  CUstream after = server.stream();
  gate.close(stream);
  ASSERT_EQ(server.cu.cuMemsetD8Async(device, 1, 64, stream), CUDA_SUCCESS);
  Arguments with;
  with.add(device, number(up), 16);
  with.add(device + 32, number(up), 16);
  ASSERT_EQ(call_second(with, stream), CUDA_SUCCESS);
  ASSERT_EQ(server.cu.cuMemsetD8Async(device + 8, 9, 32, stream), CUDA_SUCCESS);
  CUevent event = server.recorded(stream);
  ASSERT_EQ(server.cu.cuStreamWaitEvent(after, event, 0), CUDA_SUCCESS);
  Arguments back;
  back.add(number(down), device, 32);
  back.add(number(down + 32), device + 32, 32);
  ASSERT_EQ(call_second(back, after), CUDA_SUCCESS);
  for (int i = 0; i < 1000; ++i) ASSERT_EQ(server.cu.cuStreamQuery(after), CUDA_ERROR_NOT_READY);
  EXPECT_EQ(down[0], 0);
  gate.open();
  ASSERT_EQ(server.cu.cuStreamSynchronize(after), CUDA_SUCCESS);
  std::vector<uint8_t> expected(64, 1);
  std::fill_n(expected.begin(), 16, 5);
  std::fill_n(expected.begin() + 32, 16, 5);
  std::fill_n(expected.begin() + 8, 32, 9);
  EXPECT_EQ(std::vector<uint8_t>(down, down + 64), expected);
}

TEST_F(Batch, KernelsWaitForItAndItWaitsForKernels) {
  constexpr size_t kSize = 1 << 20;
  CUmodule module = nullptr;
  CUfunction kernel = nullptr;
  ASSERT_EQ(server.cu.cuModuleLoadData(&module, cuda::pull_kernel_image()), CUDA_SUCCESS);
  ASSERT_EQ(server.cu.cuModuleGetFunction(&kernel, module, cuda::kVectorKernelName), CUDA_SUCCESS);
  const auto sent = random_bytes(kSize, 3);
  const CUdeviceptr start = server.device_memory(kSize);
  const CUdeviceptr middle = server.device_memory(kSize);
  uint8_t* between = server.pinned_memory(kSize);
  uint8_t* end = server.pinned_memory(kSize);
  upload(start, sent);
  cuda::PullArgs args{};
  args.source = number(between);
  args.destination = middle;
  args.size_bytes = kSize;
  args.counters = server.device_memory(sizeof(cuda::TransferCounters));
  args.occupancy = server.device_memory(sizeof(cuda::LinkOccupancy));
  args.rank = cuda::kBulkDirectRank;
  args.relay_slot = cuda::kNoRelaySlot;
  args.report = number(server.pinned_memory(sizeof(cuda::TransferReport)));
  args.slice_bytes = 64 << 10;
  args.slice_count = static_cast<uint32_t>(cuda::slice_count_of(middle, kSize, args.slice_bytes));
  args.total_blocks = 4;
  args.path_count = 1;
  args.generation = 1;
  ASSERT_EQ(server.cu.cuMemsetD8(args.counters, 0, sizeof(cuda::TransferCounters)), CUDA_SUCCESS);
  ASSERT_EQ(server.cu.cuMemsetD8(args.occupancy, 0, sizeof(cuda::LinkOccupancy)), CUDA_SUCCESS);
  ASSERT_EQ(server.cu.cuCtxSynchronize(), CUDA_SUCCESS);
  Arguments before;
  Arguments after;
  for (size_t at = 0; at < kSize; at += kSize / 8) {
    before.add(number(between + at), start + at, kSize / 8);
    after.add(number(end + at), middle + at, kSize / 8);
  }
  void* params[] = {&args};
  ASSERT_EQ(call_second(before, stream), CUDA_SUCCESS);
  ASSERT_EQ(server.cu.cuLaunchKernel(kernel, 4, 1, 1, 512, 1, 1, 0, stream, params, nullptr),
            CUDA_SUCCESS);
  ASSERT_EQ(call_second(after, stream), CUDA_SUCCESS);
  synchronize();
  EXPECT_EQ(std::memcmp(end, sent.data(), kSize), 0);
}

// Four entries behind a closed gate, one source each; sources change before it opens.
TEST_F(Batch, SourcesAreReadAsTheirOrderSays) {
  const CUdeviceptr device = server.device_memory(64);
  uint8_t* pinned = server.pinned_memory(64);
  std::vector<uint8_t> pageable(16, 1);
  std::memset(pinned, 1, 64);
  Arguments with;
  with.add(device, number(pinned), 16);
  with.add(device + 16, number(pinned + 16), 16);
  with.add(device + 32, number(pageable.data()), 16);
  with.add(device + 48, number(pinned + 48), 16);
  with.attrs = {attributes(CU_MEMCPY_SRC_ACCESS_ORDER_STREAM),
                attributes(CU_MEMCPY_SRC_ACCESS_ORDER_DURING_API_CALL),
                attributes(CU_MEMCPY_SRC_ACCESS_ORDER_ANY)};
  with.first = {0, 1, 3};
  gate.close(stream);
  ASSERT_EQ(call_first(with, stream), CUDA_SUCCESS);
  EXPECT_EQ(server.cu.cuStreamQuery(stream), CUDA_ERROR_NOT_READY);
  std::memset(pinned, 2, 64);
  std::fill(pageable.begin(), pageable.end(), 2);
  gate.open();
  synchronize();
  std::vector<uint8_t> expected(64, 1);
  std::fill_n(expected.begin(), 16, 2);
  EXPECT_EQ(download(device, 64), expected);
}

TEST_F(Batch, SourcesThatWereReadMayGo) {
  server.use(1);
  CUstream elsewhere = server.stream();
  const CUdeviceptr target = server.device_memory(16);
  for (const auto order :
       {CU_MEMCPY_SRC_ACCESS_ORDER_DURING_API_CALL, CU_MEMCPY_SRC_ACCESS_ORDER_ANY}) {
    std::vector<uint8_t> registered(4096, 8);
    ASSERT_EQ(server.cu.cuMemHostRegister(registered.data(), 4096, 0), CUDA_SUCCESS);
    Arguments with;
    with.add(target, number(registered.data()), 16);
    with.attrs = {attributes(order)};
    Gate own(server);
    own.close(elsewhere);
    ASSERT_EQ(call_second(with, elsewhere), CUDA_SUCCESS);
    std::fill(registered.begin(), registered.end(), 9);
    own.open();
    ASSERT_EQ(server.cu.cuMemHostUnregister(registered.data()), CUDA_SUCCESS);
    EXPECT_EQ(server.cu.cuStreamSynchronize(elsewhere), CUDA_SUCCESS);
    EXPECT_EQ(download(target, 16), std::vector<uint8_t>(16, 8));
  }
}

TEST_F(Batch, TheCallWaitsWhereTheHostMustReadOrBeWritten) {
  const CUdeviceptr device = server.device_memory(32);
  std::vector<uint8_t> host(32, 3);
  Arguments up;
  up.add(device, number(host.data()), 32);
  // Stream order, and memory that only the CPU can read.
  ASSERT_EQ(server.cu.cuMemsetD8Async(device, 0, 32, stream), CUDA_SUCCESS);
  ASSERT_EQ(call_second(up, stream), CUDA_SUCCESS);
  EXPECT_EQ(server.cu.cuStreamQuery(stream), CUDA_SUCCESS);
  std::fill(host.begin(), host.end(), 0);
  Arguments down;
  down.add(number(host.data()), device, 32);
  ASSERT_EQ(call_second(down, stream), CUDA_SUCCESS);
  EXPECT_EQ(host, std::vector<uint8_t>(32, 3));
  // A device source that must be read before the call returns.
  uint8_t* pinned = server.pinned_memory(32);
  Arguments read;
  read.add(number(pinned), device, 32);
  read.attrs = {attributes(CU_MEMCPY_SRC_ACCESS_ORDER_DURING_API_CALL)};
  ASSERT_EQ(call_second(read, stream), CUDA_SUCCESS);
  EXPECT_EQ(std::vector<uint8_t>(pinned, pinned + 32), std::vector<uint8_t>(32, 3));
}

// cuMemFree waits for the context of the memory, not for that of the stream.
TEST_F(Batch, MemoryFreedBeforeItRunsIsASickContext) {
  const CUdeviceptr kept = server.device_memory(64);
  const CUdeviceptr freed = server.device_memory(64);
  ASSERT_EQ(server.cu.cuMemsetD8(kept, 1, 64), CUDA_SUCCESS);
  CUcontext sick = server.use(1);
  CUstream elsewhere = server.stream();
  uint8_t* host = server.pinned_memory(64);
  std::memset(host, 6, 64);
  gate.close(elsewhere);
  Arguments with;
  with.add(kept, number(host), 32);
  with.add(freed, number(host), 32);
  with.add(kept + 32, number(host), 32);
  ASSERT_EQ(call_first(with, elsewhere), CUDA_SUCCESS);
  ASSERT_EQ(server.cu.cuCtxSetCurrent(context), CUDA_SUCCESS);
  ASSERT_EQ(server.cu.cuMemFree(freed), CUDA_SUCCESS);
  gate.open();
  EXPECT_EQ(server.cu.cuStreamSynchronize(elsewhere), CUDA_ERROR_ILLEGAL_ADDRESS);
  EXPECT_EQ(call_first(with, elsewhere), CUDA_ERROR_ILLEGAL_ADDRESS);
  EXPECT_EQ(fail_index, kNoEntry);
  std::vector<uint8_t> expected(64, 1);
  std::fill_n(expected.begin(), 32, 6);  // what had moved, has
  EXPECT_EQ(download(kept, 64), expected);
  // The engine is free again for others.
  Arguments well;
  well.add(kept, number(server.pinned_memory(64)), 64);
  EXPECT_EQ(call_second(well, stream), CUDA_SUCCESS);
  synchronize();
  ASSERT_EQ(server.cu.cuCtxSetCurrent(sick), CUDA_SUCCESS);
  EXPECT_EQ(server.cu.cuCtxSynchronize(), CUDA_ERROR_ILLEGAL_ADDRESS);
}

TEST_F(Batch, ASourceToBeReadAtAnyTimeStaysUntilTheEnd) {
  const CUdeviceptr source = server.device_memory(64);
  server.use(1);
  CUstream elsewhere = server.stream();
  Arguments with;
  with.add(server.device_memory(64), source, 64);
  with.attrs = {attributes(CU_MEMCPY_SRC_ACCESS_ORDER_ANY)};
  gate.close(elsewhere);
  ASSERT_EQ(call_second(with, elsewhere), CUDA_SUCCESS);
  ASSERT_EQ(server.cu.cuCtxSetCurrent(context), CUDA_SUCCESS);
  ASSERT_EQ(server.cu.cuMemFree(source), CUDA_SUCCESS);
  gate.open();
  EXPECT_EQ(server.cu.cuStreamSynchronize(elsewhere), CUDA_ERROR_ILLEGAL_ADDRESS);
}

TEST_F(Batch, ACaptureRefusesItAndGoesOn) {
  const auto begin =
      server.symbol<CUresult (*)(CUstream, CUstreamCaptureMode)>("cuStreamBeginCapture_v2");
  const auto end = server.symbol<CUresult (*)(CUstream, CUgraph*)>("cuStreamEndCapture");
  const CUdeviceptr device = server.device_memory(64);
  ASSERT_EQ(server.cu.cuMemsetD8(device, 4, 64), CUDA_SUCCESS);
  Arguments with;
  with.add(device, number(server.pinned_memory(64)), 64);
  ASSERT_EQ(begin(stream, CU_STREAM_CAPTURE_MODE_GLOBAL), CUDA_SUCCESS);
  EXPECT_EQ(call_first(with, stream), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
  EXPECT_EQ(fail_index, kNoEntry);
  EXPECT_EQ(call_second(with, stream), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
  CUgraph graph = nullptr;
  EXPECT_EQ(end(stream, &graph), CUDA_SUCCESS);
  EXPECT_NE(graph, nullptr);
  EXPECT_EQ(download(device, 64), std::vector<uint8_t>(64, 4));
}

struct BatchSpeed : Batch {
  static constexpr size_t kSize = 256 << 20;
  CUdeviceptr device = server.device_memory(kSize);
  uint8_t* host = server.pinned_memory(kSize);

  void add_pieces(Arguments& with, size_t size, bool up, size_t begin, size_t end) {
    for (size_t at = begin; at < end; at += size)
      with.add(up ? device + at : number(host + at), up ? number(host + at) : device + at, size);
  }
  Arguments pieces(size_t size, bool up) {
    Arguments with;
    add_pieces(with, size, up, 0, kSize);
    return with;
  }
  double batch_us(Arguments& with) {
    CUevent start = server.recorded(stream);
    EXPECT_EQ(call_second(with, stream), CUDA_SUCCESS);
    CUevent end = server.recorded(stream);
    synchronize();
    return server.elapsed_us(start, end);
  }
  double batch_gbps(Arguments& with) { return gbps(kSize, batch_us(with)); }
};

// Measured on 4xH200; 64 KB is where the constant comes from, the others follow.
TEST_F(BatchSpeed, EntriesCostWhatTheyDoOnHardware) {
  struct Row {
    size_t size;
    double up_gbps;
    double down_gbps;
  };
  for (const Row& row : {Row{32 << 10, 31.1, 34.8}, Row{64 << 10, 44.2, 44.3},
                         Row{256 << 10, 52.1, 51.2}, Row{4 << 20, 55.3, 55.2}}) {
    Arguments up = pieces(row.size, true);
    Arguments down = pieces(row.size, false);
    EXPECT_NEAR(batch_gbps(up) / row.up_gbps, 1, 0.2) << row.size;
    EXPECT_NEAR(batch_gbps(down) / row.down_gbps, 1, 0.1) << row.size;
  }
  Arguments tiny = pieces(8 << 10, false);
  EXPECT_NEAR(batch_gbps(tiny) / 23.3, 1, 0.25);
}

TEST_F(BatchSpeed, ItBeatsALoopOfCopies) {
  Arguments with = pieces(64 << 10, true);
  CUevent start = server.recorded(stream);
  for (size_t i = 0; i < with.to.size(); ++i)
    ASSERT_EQ(server.cu.cuMemcpyHtoDAsync(with.to[i], reinterpret_cast<void*>(with.from[i]),
                                          with.sizes[i], stream),
              CUDA_SUCCESS);
  CUevent end = server.recorded(stream);
  synchronize();
  const double loop = gbps(kSize, server.elapsed_us(start, end));
  EXPECT_GT(batch_gbps(with), 2.5 * loop);
}

TEST_F(BatchSpeed, DirectionsOverlapInOneBatch) {
  constexpr size_t kPiece = 4 << 20;
  Arguments up;
  add_pieces(up, kPiece, true, 0, kSize / 2);
  Arguments both = up;
  add_pieces(both, kPiece, false, kSize / 2, kSize);
  EXPECT_LT(batch_us(both), 1.5 * batch_us(up));
}

}  // namespace
}  // namespace braid::emulator_test
