// Batches of copies, in the forms of CUDA 12.8 (with a place to say which entry was wrong) and of
// CUDA 13 (without). All entries are checked before any is enqueued; all together are one op.
#include <cstdint>
#include <utility>

#include "emulator/api/copy_end.h"
#include "emulator/api/copy_issue.h"

namespace braid::emulator {
namespace {

// Which entry an error belongs to.
constexpr size_t kNoEntry = SIZE_MAX;

Found<StreamPtr> find_batch_stream(Call& call, CUstream handle) {
  BRAID_LET(stream, find_stream(call, handle));
  if (stream->legacy) return CUDA_ERROR_INVALID_VALUE;
  // CUDA has no graph node for a batch. The capture goes on as if the call had not been made.
  if (stream->capture != nullptr) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  return stream;
}

CUresult read_attributes(CUmemcpySrcAccessOrder order, unsigned flags, SourceRead& read) {
  if ((flags & ~unsigned{CU_MEMCPY_FLAG_PREFER_OVERLAP_WITH_COMPUTE}) != 0)
    return CUDA_ERROR_INVALID_VALUE;
  switch (static_cast<int>(order)) {
    case CU_MEMCPY_SRC_ACCESS_ORDER_STREAM: read = SourceRead::kInStream; break;
    case CU_MEMCPY_SRC_ACCESS_ORDER_DURING_API_CALL: read = SourceRead::kDuringCall; break;
    case CU_MEMCPY_SRC_ACCESS_ORDER_ANY: read = SourceRead::kAnyTime; break;
    default: return CUDA_ERROR_INVALID_VALUE;
  }
  return CUDA_SUCCESS;
}

// What cuMemcpyBatchAsync is given.
struct LinearBatch {
  const CUdeviceptr* destinations;
  const CUdeviceptr* sources;
  const size_t* sizes;
  size_t count;
  const CUmemcpyAttributes* attributes;
  const size_t* first_entries;  ///< that each of the attributes applies to
  size_t attribute_count;

  size_t end_of(size_t attribute) const {
    return attribute + 1 < attribute_count ? first_entries[attribute + 1] : count;
  }
};

CUresult check_arrays(const LinearBatch& batch) {
  if (batch.destinations == nullptr || batch.sources == nullptr || batch.sizes == nullptr ||
      batch.attributes == nullptr || batch.first_entries == nullptr)
    return CUDA_ERROR_INVALID_VALUE;
  if (batch.attribute_count == 0 || batch.attribute_count > batch.count)
    return CUDA_ERROR_INVALID_VALUE;
  if (batch.first_entries[0] != 0) return CUDA_ERROR_INVALID_VALUE;
  for (size_t i = 0; i < batch.attribute_count; ++i)
    if (batch.first_entries[i] >= batch.end_of(i)) return CUDA_ERROR_INVALID_VALUE;
  return CUDA_SUCCESS;
}

// Measured on 2xH200, driver 580.159: a batch with an entry of no bytes is refused, and that entry
// is the one that failed.
CUresult find_copy(Call& call, const LinearBatch& batch, size_t entry, Copy& copy) {
  const size_t size_bytes = batch.sizes[entry];
  copy.extent.width_bytes = size_bytes;
  if (size_bytes == 0) return CUDA_ERROR_INVALID_VALUE;
  BRAID_TRY(find_end(call, batch.destinations[entry], size_bytes, EndKind::kAny, copy.destination));
  return find_end(call, batch.sources[entry], size_bytes, EndKind::kAny, copy.source);
}

CUresult gather(Call& call, const LinearBatch& batch, std::vector<Copy>& copies, size_t& entry) {
  BRAID_TRY(check_arrays(batch));
  copies.resize(batch.count);
  for (size_t attribute = 0; attribute < batch.attribute_count; ++attribute) {
    const CUmemcpyAttributes& attributes = batch.attributes[attribute];
    SourceRead read = SourceRead::kInStream;
    entry = batch.first_entries[attribute];
    BRAID_TRY(read_attributes(attributes.srcAccessOrder, attributes.flags, read));
    for (; entry < batch.end_of(attribute); ++entry) {
      copies[entry].read = read;
      BRAID_TRY(find_copy(call, batch, entry, copies[entry]));
    }
  }
  return CUDA_SUCCESS;
}

// What cuMemcpy3DBatchAsync is given.
struct ShapedBatch {
  const CUDA_MEMCPY3D_BATCH_OP* entries;
  size_t count;
  unsigned long long flags;
};

CUresult find_operand(Call& call, const CUmemcpy3DOperand& operand, const Extent& extent,
                      CopyEnd& end) {
  if (operand.type == CU_MEMCPY_OPERAND_TYPE_ARRAY) return CUDA_ERROR_NOT_SUPPORTED;
  if (operand.type != CU_MEMCPY_OPERAND_TYPE_POINTER) return CUDA_ERROR_INVALID_VALUE;
  Layout layout;
  layout.row_bytes = operand.op.ptr.rowLength;  // elements of pointers are bytes
  layout.layer_rows = operand.op.ptr.layerHeight;
  return find_rows(call, operand.op.ptr.ptr, layout, extent, EndKind::kAny, end);
}

CUresult gather(Call& call, const ShapedBatch& batch, std::vector<Copy>& copies, size_t& entry) {
  if (batch.entries == nullptr || batch.count == 0 || batch.flags != 0)
    return CUDA_ERROR_INVALID_VALUE;
  copies.resize(batch.count);
  for (entry = 0; entry < batch.count; ++entry) {
    const CUDA_MEMCPY3D_BATCH_OP& given = batch.entries[entry];
    Copy& copy = copies[entry];
    copy.extent = {given.extent.width, given.extent.height, given.extent.depth};
    if (copy.extent.empty()) return CUDA_ERROR_INVALID_VALUE;
    BRAID_TRY(read_attributes(given.srcAccessOrder, given.flags, copy.read));
    BRAID_TRY(find_operand(call, given.dst, copy.extent, copy.destination));
    BRAID_TRY(find_operand(call, given.src, copy.extent, copy.source));
  }
  return CUDA_SUCCESS;
}

template <typename Batch>
CUresult run(Call& call, const Batch& batch, size_t* fail_index, CUstream handle) {
  std::vector<Copy> copies;
  size_t entry = kNoEntry;
  auto stream = find_batch_stream(call, handle);
  const CUresult result = stream.ok() ? gather(call, batch, copies, entry) : stream.status();
  if (result == CUDA_SUCCESS)
    return issue_copies(call, stream.value(), std::move(copies), Waiting::kAsynchronous);
  if (fail_index != nullptr) *fail_index = entry;
  return result;
}

CUresult linear(Call& call, CUdeviceptr* to, CUdeviceptr* from, size_t* sizes, size_t count,
                CUmemcpyAttributes* attributes, size_t* first, size_t attribute_count,
                size_t* fail_index, CUstream stream) {
  return run(call, LinearBatch{to, from, sizes, count, attributes, first, attribute_count},
             fail_index, stream);
}
CUresult linear_v2(Call& call, CUdeviceptr* to, CUdeviceptr* from, size_t* sizes, size_t count,
                   CUmemcpyAttributes* attributes, size_t* first, size_t attribute_count,
                   CUstream stream) {
  return linear(call, to, from, sizes, count, attributes, first, attribute_count, nullptr, stream);
}
CUresult shaped(Call& call, size_t count, CUDA_MEMCPY3D_BATCH_OP* entries, size_t* fail_index,
                unsigned long long flags, CUstream stream) {
  return run(call, ShapedBatch{entries, count, flags}, fail_index, stream);
}
CUresult shaped_v2(Call& call, size_t count, CUDA_MEMCPY3D_BATCH_OP* entries,
                   unsigned long long flags, CUstream stream) {
  return shaped(call, count, entries, nullptr, flags, stream);
}

}  // namespace

BRAID_ENTRY_STREAM(cuMemcpyBatchAsync, _ptsz, Cost::kEnqueue, 9, linear)
BRAID_ENTRY_STREAM(cuMemcpyBatchAsync_v2, _ptsz, Cost::kEnqueue, 8, linear_v2)
BRAID_ENTRY_STREAM(cuMemcpy3DBatchAsync, _ptsz, Cost::kEnqueue, 5, shaped)
BRAID_ENTRY_STREAM(cuMemcpy3DBatchAsync_v2, _ptsz, Cost::kEnqueue, 4, shaped_v2)

}  // namespace braid::emulator
