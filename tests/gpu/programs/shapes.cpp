// Copies of every shape: batches, rows, layers, and memory that is not pinned.
//   shapes SIZE_BYTES
#include "batch.h"
#include "driver_program.h"

namespace {

using namespace program;

constexpr size_t kSegmentBytes = size_t{64} << 10;

CUdeviceptr address(const void* host) { return reinterpret_cast<CUdeviceptr>(host); }

void copy_batch(Batch<CUdeviceptr>& batch, CUstream stream) {
  CUmemcpyAttributes attributes{};
  attributes.srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_STREAM;
  MUST(enqueue_batch(batch, attributes, [=](auto... parameters) {
    return cuMemcpyBatchAsync(parameters..., stream);
  }));
}

// The blocks of a KV cache: there in one order, back in another.
void batches(size_t size_bytes) {
  const size_t blocks = size_bytes / kSegmentBytes;
  const Pattern pattern(1);
  const CUstream stream = new_stream();
  unsigned char* source = pin(blocks * kSegmentBytes, pattern);
  unsigned char* landing = pin(blocks * kSegmentBytes);
  const CUdeviceptr device = allocate(blocks * kSegmentBytes);
  for (size_t round = 0; round < 3; ++round) {
    std::memset(landing, 0, blocks * kSegmentBytes);
    const size_t length = kSegmentBytes - round;  // whole and ragged
    Batch<CUdeviceptr> there, back;
    for (size_t block = 0; block < blocks; ++block) {
      const CUdeviceptr slot = device + (blocks - 1 - block) * kSegmentBytes;
      there.add(slot, address(source + block * kSegmentBytes), length);
      back.add(address(landing + block * kSegmentBytes), slot, length);
    }
    copy_batch(there, stream);
    copy_batch(back, stream);
    MUST(cuStreamSynchronize(stream));
    for (size_t block = 0; block < blocks; ++block)
      pattern.check(landing + block * kSegmentBytes, length, "a batch", block * kSegmentBytes);
  }
}

CUDA_MEMCPY3D box_of(size_t width, size_t height, size_t depth) {
  CUDA_MEMCPY3D box{};
  box.WidthInBytes = width;
  box.Height = height;
  box.Depth = depth;
  return box;
}

// Rows of `width` bytes, which lie `pitch` apart on the GPU and side by side on the host.
void rows(size_t size_bytes, size_t width, Kind kind) {
  const size_t height = size_bytes / width;
  const size_t pitch = width + 512;
  const Pattern pattern(width);
  const CUstream stream = new_stream();
  unsigned char* source = pin(width * height, pattern);
  unsigned char* landing = pin(width * height);
  std::memset(landing, 0, width * height);
  const CUdeviceptr device = allocate(pitch * height);
  CUDA_MEMCPY2D there{};
  there.srcMemoryType = CU_MEMORYTYPE_HOST;
  there.srcHost = source;
  there.srcPitch = width;
  there.dstMemoryType = CU_MEMORYTYPE_DEVICE;
  there.dstDevice = device;
  there.dstPitch = pitch;
  there.WidthInBytes = width;
  there.Height = height;
  CUDA_MEMCPY2D back{};
  back.srcMemoryType = CU_MEMORYTYPE_DEVICE;
  back.srcDevice = device;
  back.srcPitch = pitch;
  back.dstMemoryType = CU_MEMORYTYPE_HOST;
  back.dstHost = landing;
  back.dstPitch = width;
  back.WidthInBytes = width;
  back.Height = height;
  MUST(cuMemcpy2DAsync(&there, stream));
  MUST(cuStreamSynchronize(stream));
  MUST(cuMemcpy2D(&back));
  copied(kind, 2 * width * height, 2);
  pattern.check(landing, width * height, "a copy of rows");
}

void layers(size_t size_bytes) {
  constexpr size_t kWidth = size_t{32} << 10, kDepth = 4;
  const size_t height = size_bytes / kWidth / kDepth;
  const size_t layer_bytes = kWidth * height;
  const Pattern pattern(3);
  const CUstream stream = new_stream();
  unsigned char* source = pin(layer_bytes * kDepth, pattern);
  unsigned char* landing = pin(layer_bytes * kDepth);
  std::memset(landing, 0, layer_bytes * kDepth);
  const CUdeviceptr device = allocate((kWidth + 512) * (height + 1) * kDepth);
  CUDA_MEMCPY3D there = box_of(kWidth, height, kDepth);
  there.srcMemoryType = CU_MEMORYTYPE_HOST;
  there.srcHost = source;
  there.srcPitch = kWidth;
  there.srcHeight = height;
  there.dstMemoryType = CU_MEMORYTYPE_DEVICE;
  there.dstDevice = device;
  there.dstPitch = kWidth + 512;
  there.dstHeight = height + 1;
  CUDA_MEMCPY3D back = box_of(kWidth, height, kDepth);
  back.srcMemoryType = CU_MEMORYTYPE_DEVICE;
  back.srcDevice = device;
  back.srcPitch = there.dstPitch;
  back.srcHeight = there.dstHeight;
  back.dstMemoryType = CU_MEMORYTYPE_HOST;
  back.dstHost = landing;
  back.dstPitch = kWidth;
  back.dstHeight = height;
  MUST(cuMemcpy3DAsync(&there, stream));
  MUST(cuMemcpy3DAsync(&back, stream));
  MUST(cuStreamSynchronize(stream));
  copied(Kind::kPinned, 2 * layer_bytes * kDepth, 2);
  pattern.check(landing, layer_bytes * kDepth, "a copy of layers");
}

// cuMemcpy3DBatchAsync in the form of CUDA 12.8, or of 13 where the driver has it.
void copy_boxes(std::vector<CUDA_MEMCPY3D_BATCH_OP> boxes, bool in_first_form, CUstream stream) {
  void* function = nullptr;
  CUdriverProcAddressQueryResult found{};
  const int version = in_first_form ? 12080 : 13000;
  MUST(cuGetProcAddress("cuMemcpy3DBatchAsync", &function, version, 0, &found));
  int driver_version = 0;
  MUST(cuDriverGetVersion(&driver_version));
  size_t failed = 0;
  if (in_first_form || driver_version < version)
    MUST(reinterpret_cast<CUresult (*)(size_t, CUDA_MEMCPY3D_BATCH_OP*, size_t*, unsigned long long,
                                       CUstream)>(function)(boxes.size(), boxes.data(), &failed, 0,
                                                            stream));
  else
    MUST(reinterpret_cast<CUresult (*)(size_t, CUDA_MEMCPY3D_BATCH_OP*, unsigned long long,
                                       CUstream)>(function)(boxes.size(), boxes.data(), 0, stream));
  size_t all_bytes = 0;
  for (const auto& box : boxes) all_bytes += box.extent.width * box.extent.height;
  copied(Kind::kPinned, all_bytes);
}

CUmemcpy3DOperand rows_at(CUdeviceptr first, size_t pitch) {
  CUmemcpy3DOperand operand{};
  operand.type = CU_MEMCPY_OPERAND_TYPE_POINTER;
  operand.op.ptr.ptr = first;
  operand.op.ptr.rowLength = pitch;
  return operand;
}

// Boxes of long rows, side by side on the host and a pitch apart on the GPU.
void boxes(size_t size_bytes, bool in_first_form) {
  constexpr size_t kWidth = size_t{24} << 10, kHeight = 16, kPitch = kWidth + 512;
  const size_t count = size_bytes / (kWidth * kHeight);
  const Pattern pattern(4);
  const CUstream stream = new_stream();
  unsigned char* source = pin(count * kWidth * kHeight, pattern);
  unsigned char* landing = pin(count * kWidth * kHeight);
  std::memset(landing, 0, count * kWidth * kHeight);
  const CUdeviceptr device = allocate(count * kPitch * kHeight);
  std::vector<CUDA_MEMCPY3D_BATCH_OP> there(count), back;
  for (size_t box = 0; box < count; ++box) {
    there[box].src = rows_at(address(source + box * kWidth * kHeight), kWidth);
    there[box].dst = rows_at(device + (count - 1 - box) * kPitch * kHeight, kPitch);
    there[box].extent = {kWidth, kHeight, 1};
    there[box].srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_STREAM;
    back.push_back(there[box]);
    back[box].src = there[box].dst;
    back[box].dst = rows_at(address(landing + box * kWidth * kHeight), kWidth);
  }
  copy_boxes(there, in_first_form, stream);
  copy_boxes(back, in_first_form, stream);
  MUST(cuStreamSynchronize(stream));
  pattern.check(landing, count * kWidth * kHeight, "a batch of boxes");
}

// Once the call has returned the source is the program's again, and what came back is there.
void pageable(size_t size_bytes) {
  const CUstream stream = new_stream();
  const CUdeviceptr device = allocate(size_bytes);
  std::vector<unsigned char> source(size_bytes), landing(size_bytes);
  for (uint64_t round = 0; round < 4; ++round) {
    const bool is_async = round % 2 == 1;
    const Pattern pattern(10 + round);
    pattern.fill(source.data(), size_bytes);
    if (is_async) {
      to_device(device, source.data(), size_bytes, stream, Kind::kPageable);
    } else {
      MUST(cuMemcpyHtoD(device, source.data(), size_bytes));
      copied(Kind::kPageable, size_bytes);
    }
    std::fill(source.begin(), source.end(), static_cast<unsigned char>(0));
    MUST(cuStreamSynchronize(stream));
    check_device(device, size_bytes, pattern, "from pageable memory");
    if (is_async) {
      to_host(landing.data(), device, size_bytes, stream, Kind::kPageable);
      MUST(cuStreamSynchronize(stream));
    } else {
      MUST(cuMemcpyDtoH(landing.data(), device, size_bytes));
      copied(Kind::kPageable, size_bytes);
    }
    pattern.check(landing.data(), size_bytes, "to pageable memory");
  }
}

}  // namespace

int main(int argc, char** argv) {
  const size_t size_bytes = size_argument(argc, argv);
  use_gpus(1);
  pageable(size_bytes + 77);  // before anything has been pinned
  batches(size_bytes);
  rows(size_bytes, size_t{64} << 10, Kind::kPinned);
  rows(size_bytes, size_t{1} << 10, Kind::kNarrow);
  layers(size_bytes);
  for (const bool in_first_form : {true, false}) boxes(size_bytes, in_first_form);
  print_counts();
  return 0;
}
