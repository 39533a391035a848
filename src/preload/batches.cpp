// Batches of copies. A batch goes to the engine as a whole, when all its entries go the same way
// between pinned host memory and one GPU; otherwise, and whenever an argument is not as documented,
// the driver gives its own answer.
#include "preload/checked.h"
#include "preload/entries.h"
#include "preload/intercept.h"
#include "preload/scratch.h"
#include "preload/shapes.h"

namespace braid::preload {
namespace {

using multipath::Batch;
using multipath::Segment;

// Small entries are slow natively, so batches gain from fewer bytes than one copy does; the engine
// knows from how many. Under this nothing does.
constexpr uint64_t kSmallestBatchBytes = 128 << 10;

// The driver refuses batches on the legacy stream.
bool takes_batches(CUstream stream) { return stream != CU_STREAM_LEGACY; }

// Reading in the stream's order is right for ANY, too; during the call is what braid cannot do.
bool is_known_order(CUmemcpySrcAccessOrder order) {
  return order == CU_MEMCPY_SRC_ACCESS_ORDER_STREAM || order == CU_MEMCPY_SRC_ACCESS_ORDER_ANY;
}

bool reads_in_order(CUmemcpySrcAccessOrder order) {
  return order == CU_MEMCPY_SRC_ACCESS_ORDER_STREAM;
}

bool are_known_flags(unsigned long long flags) {
  return flags == CU_MEMCPY_FLAG_DEFAULT || flags == CU_MEMCPY_FLAG_PREFER_OVERLAP_WITH_COMPUTE;
}

// Asked of one entry, it holds for the batch: nothing of it takes SMs from the program's kernels.
bool spares_sms(unsigned long long flags) {
  return (flags & CU_MEMCPY_FLAG_PREFER_OVERLAP_WITH_COMPUTE) != 0;
}

struct BatchArguments {
  const CUdeviceptr* to;
  const CUdeviceptr* from;
  const size_t* sizes;
  size_t count;
  const CUmemcpyAttributes* attributes;
  const size_t* attribute_starts;  // the entry where each begins to hold
  size_t attribute_count;
  CUstream stream;
};

uint64_t total_bytes(const size_t* sizes, size_t count) {
  uint64_t total = 0;
  if (sizes != nullptr)
    for (size_t i = 0; i < count; ++i) total += sizes[i];
  return total;
}

// As documented: the first holds from entry 0, each of the others from a later one.
bool are_attributes_valid(const BatchArguments& batch) {
  if (batch.attributes == nullptr || batch.attribute_starts == nullptr ||
      batch.attribute_count == 0 || batch.attribute_count > batch.count ||
      batch.attribute_starts[0] != 0)
    return false;
  for (size_t i = 0; i < batch.attribute_count; ++i) {
    const bool is_later = i == 0 || batch.attribute_starts[i] > batch.attribute_starts[i - 1];
    if (!is_later || batch.attribute_starts[i] >= batch.count ||
        !is_known_order(batch.attributes[i].srcAccessOrder) ||
        !are_known_flags(batch.attributes[i].flags))
      return false;
  }
  return true;
}

// The driver refuses a batch with an entry of no bytes (docs/measurements, 2026-11-23-2xH200).
void offer(Interception& call, const BatchArguments& batch) noexcept try {
  if (!takes_batches(batch.stream) || batch.to == nullptr || batch.from == nullptr ||
      !are_attributes_valid(batch))
    return;
  const auto direction = call.find_direction(batch.to[0], batch.from[0]);
  if (!direction) return;
  std::vector<Segment>* segments = scratch_segments();
  if (segments == nullptr) return call.give_up();
  segments->reserve(batch.count);
  for (size_t i = 0; i < batch.count; ++i) {
    if (batch.sizes[i] == 0) return;
    segments->push_back(segment_of(*direction, batch.to[i], batch.from[i], batch.sizes[i]));
  }
  Batch offered(*direction, *segments, batch.stream);
  for (size_t i = 0; i < batch.attribute_count; ++i) {
    const CUmemcpyAttributes& given = batch.attributes[i];
    offered.spares_sms = offered.spares_sms || spares_sms(given.flags);
    offered.reads_in_order = offered.reads_in_order || reads_in_order(given.srcAccessOrder);
  }
  call.offer(offered);
} catch (...) {
  call.give_up();
}

// What CUDA says of a batch that has failed without an entry being wrong.
void say_no_entry(size_t* fail_index) {
  if (fail_index != nullptr) *fail_index = SIZE_MAX;
}

// `fail_index`: where the call says which entry was wrong, if it does.
template <typename... Arguments>
CUresult copy_batch(HookId hook, const BatchArguments& batch, size_t* fail_index,
                    Arguments... arguments) {
  Interception call(hook, Wait::kNo, total_bytes(batch.sizes, batch.count));
  if (call.may_gain(kSmallestBatchBytes)) offer(call, batch);
  if (call.has_failed()) say_no_entry(fail_index);
  return call.finish(arguments...);
}

// Of an operand that is a pointer; lengths of 0 mean that rows and layers touch. False if the
// distance of two layers wraps.
bool find_end(const CUmemcpy3DOperand& operand, const CUextent3D& extent, BoxEnd& end) {
  const auto& pointer = operand.op.ptr;
  const uint64_t row = pointer.rowLength != 0 ? pointer.rowLength : extent.width;
  const uint64_t rows = pointer.layerHeight != 0 ? pointer.layerHeight : extent.height;
  const Checked layer = Checked(row) * rows;
  end = {pointer.ptr, row, layer.value()};
  return layer.is_exact();
}

bool is_pointer(const CUmemcpy3DOperand& operand) {
  return operand.type == CU_MEMCPY_OPERAND_TYPE_POINTER;
}

uint64_t total_bytes(const CUDA_MEMCPY3D_BATCH_OP* boxes, size_t count) {
  uint64_t total = 0;
  if (boxes != nullptr)
    for (size_t i = 0; i < count; ++i) {
      const CUextent3D& extent = boxes[i].extent;
      total += Box{{}, {}, extent.width, extent.height, extent.depth}.size_bytes();
    }
  return total;
}

void offer_boxes(Interception& call, const CUDA_MEMCPY3D_BATCH_OP* boxes, size_t count,
                 unsigned long long flags, CUstream stream) noexcept try {
  if (!takes_batches(stream) || flags != 0 || !is_pointer(boxes[0].src) ||
      !is_pointer(boxes[0].dst))
    return;
  const auto direction = call.find_direction(boxes[0].dst.op.ptr.ptr, boxes[0].src.op.ptr.ptr);
  if (!direction) return;
  std::vector<Segment>* segments = scratch_segments();
  if (segments == nullptr) return call.give_up();
  bool is_sparing = false, is_ordered = false;
  for (size_t i = 0; i < count; ++i) {
    const CUDA_MEMCPY3D_BATCH_OP& op = boxes[i];
    if (!is_pointer(op.src) || !is_pointer(op.dst) || !is_known_order(op.srcAccessOrder) ||
        !are_known_flags(op.flags))
      return;
    Box box{{}, {}, op.extent.width, op.extent.height, op.extent.depth};
    if (!find_end(op.dst, op.extent, box.to) || !find_end(op.src, op.extent, box.from) ||
        !append_rows(box, *direction, *segments))
      return;
    is_sparing = is_sparing || spares_sms(op.flags);
    is_ordered = is_ordered || reads_in_order(op.srcAccessOrder);
  }
  Batch offered(*direction, *segments, stream);
  offered.spares_sms = is_sparing;
  offered.reads_in_order = is_ordered;
  call.offer(offered);
} catch (...) {
  call.give_up();
}

template <typename... Arguments>
CUresult copy_boxes(HookId hook, size_t count, const CUDA_MEMCPY3D_BATCH_OP* boxes,
                    unsigned long long flags, CUstream stream, size_t* fail_index,
                    Arguments... arguments) {
  Interception call(hook, Wait::kNo, total_bytes(boxes, count));
  if (call.may_gain(kSmallestBatchBytes)) offer_boxes(call, boxes, count, flags, stream);
  if (call.has_failed()) say_no_entry(fail_index);
  return call.finish(arguments...);
}

}  // namespace
}  // namespace braid::preload

using namespace braid::preload;

// Before CUDA 13 a batch says which entry was wrong. `stream_of`: the stream as the engine is told.
#define BRAID_BATCH_12(symbol, stream_of)                                                        \
  CUresult symbol(CUdeviceptr* to, CUdeviceptr* from, size_t* sizes, size_t count,               \
                  CUmemcpyAttributes* attributes, size_t* starts, size_t attribute_count,        \
                  size_t* fail_index, CUstream stream) {                                         \
    const BatchArguments batch{to,         from,   sizes,           count,                       \
                               attributes, starts, attribute_count, stream_of(stream)};          \
    return copy_batch(k_##symbol, batch, fail_index, to, from, sizes, count, attributes, starts, \
                      attribute_count, fail_index, stream);                                      \
  }
#define BRAID_BATCH_13(symbol, stream_of)                                                     \
  CUresult symbol(CUdeviceptr* to, CUdeviceptr* from, size_t* sizes, size_t count,            \
                  CUmemcpyAttributes* attributes, size_t* starts, size_t attribute_count,     \
                  CUstream stream) {                                                          \
    const BatchArguments batch{to,         from,   sizes,           count,                    \
                               attributes, starts, attribute_count, stream_of(stream)};       \
    return copy_batch(k_##symbol, batch, nullptr, to, from, sizes, count, attributes, starts, \
                      attribute_count, stream);                                               \
  }
#define BRAID_BOXES_12(symbol, stream_of)                                                    \
  CUresult symbol(size_t count, CUDA_MEMCPY3D_BATCH_OP* boxes, size_t* fail_index,           \
                  unsigned long long flags, CUstream stream) {                               \
    return copy_boxes(k_##symbol, count, boxes, flags, stream_of(stream), fail_index, count, \
                      boxes, fail_index, flags, stream);                                     \
  }
#define BRAID_BOXES_13(symbol, stream_of)                                                        \
  CUresult symbol(size_t count, CUDA_MEMCPY3D_BATCH_OP* boxes, unsigned long long flags,         \
                  CUstream stream) {                                                             \
    return copy_boxes(k_##symbol, count, boxes, flags, stream_of(stream), nullptr, count, boxes, \
                      flags, stream);                                                            \
  }

BRAID_BATCH_12(cuMemcpyBatchAsync, legacy)
BRAID_BATCH_12(cuMemcpyBatchAsync_ptsz, per_thread)
BRAID_BATCH_13(cuMemcpyBatchAsync_v2, legacy)
BRAID_BATCH_13(cuMemcpyBatchAsync_v2_ptsz, per_thread)
BRAID_BOXES_12(cuMemcpy3DBatchAsync, legacy)
BRAID_BOXES_12(cuMemcpy3DBatchAsync_ptsz, per_thread)
BRAID_BOXES_13(cuMemcpy3DBatchAsync_v2, legacy)
BRAID_BOXES_13(cuMemcpy3DBatchAsync_v2_ptsz, per_thread)
