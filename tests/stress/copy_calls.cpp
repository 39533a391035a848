#include "stress/copy_calls.h"

namespace braid::stress {
namespace {

void* host(CUdeviceptr address) { return reinterpret_cast<void*>(address); }

CUresult make_linear(const Calls& calls, const Copy& copy, CUstream stream, CUdeviceptr to,
                     CUdeviceptr from) {
  const uint64_t size = copy.pieces.front().size_bytes;
  const bool form = copy.has_per_thread_symbol;
  switch (copy.call) {
    case CopyCall::kUp:
      return copy.is_async ? calls.up_async[form](to, host(from), size, stream)
                           : calls.up[form](to, host(from), size);
    case CopyCall::kDown:
      return copy.is_async ? calls.down_async[form](host(to), from, size, stream)
                           : calls.down[form](host(to), from, size);
    default:
      return copy.is_async ? calls.any_async[form](to, from, size, stream)
                           : calls.any[form](to, from, size);
  }
}

// Unified addressing lets one memory type stand for all.
CUresult make_rows(const Calls& calls, const Copy& copy, CUstream stream, CUdeviceptr to,
                   CUdeviceptr from) {
  CUDA_MEMCPY2D rows{};
  rows.srcMemoryType = rows.dstMemoryType = CU_MEMORYTYPE_UNIFIED;
  rows.dstDevice = to;
  rows.srcDevice = from;
  rows.dstPitch = copy.shape.to_pitch_bytes;
  rows.srcPitch = copy.shape.from_pitch_bytes;
  rows.WidthInBytes = copy.shape.width_bytes;
  rows.Height = copy.shape.height;
  const bool form = copy.has_per_thread_symbol;
  if (copy.call == CopyCall::kRowsUnaligned) return calls.rows_unaligned[form](&rows);
  return copy.is_async ? calls.rows_async[form](&rows, stream) : calls.rows[form](&rows);
}

CUresult make_layers(const Calls& calls, const Copy& copy, CUstream stream, CUdeviceptr to,
                     CUdeviceptr from) {
  CUDA_MEMCPY3D layers{};
  layers.srcMemoryType = layers.dstMemoryType = CU_MEMORYTYPE_UNIFIED;
  layers.dstDevice = to;
  layers.srcDevice = from;
  layers.dstPitch = copy.shape.to_pitch_bytes;
  layers.srcPitch = copy.shape.from_pitch_bytes;
  layers.dstHeight = copy.shape.to_layer_rows;
  layers.srcHeight = copy.shape.from_layer_rows;
  layers.WidthInBytes = copy.shape.width_bytes;
  layers.Height = copy.shape.height;
  layers.Depth = copy.shape.depth;
  const bool form = copy.has_per_thread_symbol;
  return copy.is_async ? calls.layers_async[form](&layers, stream) : calls.layers[form](&layers);
}

// The arguments of cuMemcpyBatchAsync, in either form.
struct Entries {
  std::vector<CUdeviceptr> to, from;
  std::vector<size_t> sizes;
  std::vector<CUmemcpyAttributes> attributes;
  std::vector<size_t> starts;

  void add_attribute(CUmemcpySrcAccessOrder order, size_t start) {
    CUmemcpyAttributes made{};
    made.srcAccessOrder = order;
    attributes.push_back(made);
    starts.push_back(start);
  }
  CUresult call(const Calls& calls, bool is_first_form, bool form, CUstream stream,
                size_t& fail_index) {
    if (is_first_form)
      return calls.batch_first[form](to.data(), from.data(), sizes.data(), sizes.size(),
                                     attributes.data(), starts.data(), attributes.size(),
                                     &fail_index, stream);
    return calls.batch[form](to.data(), from.data(), sizes.data(), sizes.size(), attributes.data(),
                             starts.data(), attributes.size(), stream);
  }
};

CUresult make_batch(const Calls& calls, const Copy& copy, CUstream stream, const AddressOf& address,
                    size_t& fail_index) {
  Entries entries;
  for (const Piece& piece : copy.pieces) {
    entries.to.push_back(address(piece.to) + piece.to_offset);
    entries.from.push_back(address(piece.from) + piece.from_offset);
    entries.sizes.push_back(piece.size_bytes);
  }
  entries.add_attribute(copy.order, 0);
  if (copy.second_attribute_at > 0)
    entries.add_attribute(CU_MEMCPY_SRC_ACCESS_ORDER_STREAM, copy.second_attribute_at);
  return entries.call(calls, copy.call == CopyCall::kBatchFirst, copy.has_per_thread_symbol, stream,
                      fail_index);
}

CUmemcpy3DOperand operand(CUdeviceptr address, uint64_t pitch_bytes, uint64_t layer_rows) {
  CUmemcpy3DOperand made{};
  made.type = CU_MEMCPY_OPERAND_TYPE_POINTER;
  made.op.ptr.ptr = address;
  made.op.ptr.rowLength = pitch_bytes;
  made.op.ptr.layerHeight = layer_rows;
  return made;
}

CUresult make_boxes(const Calls& calls, const Copy& copy, CUstream stream, CUdeviceptr to,
                    CUdeviceptr from, size_t& fail_index) {
  const Shape& shape = copy.shape;
  CUDA_MEMCPY3D_BATCH_OP box{};
  box.dst = operand(to, shape.to_pitch_bytes, shape.to_layer_rows);
  box.src = operand(from, shape.from_pitch_bytes, shape.from_layer_rows);
  box.extent = {shape.width_bytes, shape.height, shape.depth};
  box.srcAccessOrder = copy.order;
  const bool form = copy.has_per_thread_symbol;
  return copy.call == CopyCall::kBoxesFirst
             ? calls.boxes_first[form](1, &box, &fail_index, 0, stream)
             : calls.boxes[form](1, &box, 0, stream);
}

Entries two_entries(const Victim& victim) {
  Entries entries;
  const uint64_t half = victim.size_bytes / 2;
  for (const uint64_t at : {uint64_t{0}, half}) {
    entries.to.push_back(victim.device + at);
    entries.from.push_back(reinterpret_cast<CUdeviceptr>(victim.host) + at);
    entries.sizes.push_back(half);
  }
  entries.add_attribute(CU_MEMCPY_SRC_ACCESS_ORDER_STREAM, 0);
  return entries;
}

CUresult make_batch_mistake(const Calls& calls, Mistake mistake, CUstream stream,
                            const Victim& victim, size_t& fail_index) {
  Entries entries = two_entries(victim);
  switch (mistake) {
    case Mistake::kEmptyBatch:
      entries.to.clear();
      entries.from.clear();
      entries.sizes.clear();
      break;
    case Mistake::kBatchWithoutAttributes:
      entries.attributes.clear();
      entries.starts.clear();
      break;
    case Mistake::kBatchAttributeStart: entries.starts[0] = 1; break;
    case Mistake::kBatchOrder:
      entries.attributes[0].srcAccessOrder = static_cast<CUmemcpySrcAccessOrder>(77);
      break;
    case Mistake::kBatchEntryTooLong: entries.sizes[1] = victim.size_bytes; break;
    default: stream = CU_STREAM_LEGACY;
  }
  const CUresult first = entries.call(calls, true, false, stream, fail_index);
  const CUresult second = entries.call(calls, false, true, stream, fail_index);
  return first == second ? first : CUDA_ERROR_UNKNOWN;  // never: the forms answer alike
}

// Into the middle of much: what another thread allocates right after, as braid's does while relays
// open, lies at the beginning.
CUresult copy_to_freed(const Calls& calls, CUstream stream, const Victim& victim) {
  constexpr size_t kMuch = size_t{512} << 20;
  CUdeviceptr freed = 0;
  must(calls.allocate(&freed, kMuch), "allocating");
  must(calls.free(freed), "freeing");
  return calls.up_async[false](freed + kMuch / 2, victim.host, victim.size_bytes, stream);
}

CUresult copy_in_destroyed(const Calls& calls, const Victim& victim) {
  CUstream destroyed = nullptr;
  must(calls.create_stream(&destroyed, CU_STREAM_NON_BLOCKING, 0), "creating a stream");
  must(calls.destroy_stream(destroyed), "destroying it");
  return calls.up_async[false](victim.device, victim.host, victim.size_bytes, destroyed);
}

CUresult copy_overlapping_rows(const Calls& calls, CUstream stream, const Victim& victim) {
  CUDA_MEMCPY2D rows{};
  rows.srcMemoryType = rows.dstMemoryType = CU_MEMORYTYPE_UNIFIED;
  rows.dstDevice = victim.device;
  rows.srcDevice = reinterpret_cast<CUdeviceptr>(victim.host);
  rows.WidthInBytes = 512;
  rows.dstPitch = rows.srcPitch = 256;
  rows.Height = 4;
  return calls.rows_async[false](&rows, stream);
}

CUresult copy_flagged_boxes(const Calls& calls, CUstream stream, const Victim& victim,
                            size_t& fail_index) {
  CUDA_MEMCPY3D_BATCH_OP box{};
  box.dst = operand(victim.device, 0, 0);
  box.src = operand(reinterpret_cast<CUdeviceptr>(victim.host), 0, 0);
  box.extent = {64, 2, 1};
  box.srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_STREAM;
  return calls.boxes_first[false](1, &box, &fail_index, 1, stream);
}

}  // namespace

CUresult make_copy(const Calls& calls, const Copy& copy, CUstream stream, const AddressOf& address,
                   size_t& fail_index) {
  const Piece& piece = copy.pieces.front();
  const CUdeviceptr to = address(piece.to) + piece.to_offset;
  const CUdeviceptr from = address(piece.from) + piece.from_offset;
  switch (copy.call) {
    case CopyCall::kRows:
    case CopyCall::kRowsUnaligned: return make_rows(calls, copy, stream, to, from);
    case CopyCall::kLayers: return make_layers(calls, copy, stream, to, from);
    case CopyCall::kBatchFirst:
    case CopyCall::kBatch: return make_batch(calls, copy, stream, address, fail_index);
    case CopyCall::kBoxesFirst:
    case CopyCall::kBoxes: return make_boxes(calls, copy, stream, to, from, fail_index);
    default: return make_linear(calls, copy, stream, to, from);
  }
}

CUresult make_mistake(const Calls& calls, Mistake mistake, CUstream stream, const Victim& victim,
                      size_t& fail_index) {
  const uint64_t size = victim.size_bytes;
  switch (mistake) {
    case Mistake::kTooLong:
      return calls.up_async[false](victim.device + 1, victim.host, size, stream);
    case Mistake::kNullDevice: return calls.up_async[false](0, victim.host, size, stream);
    case Mistake::kNullHost: return calls.down_async[true](nullptr, victim.device, size, stream);
    case Mistake::kDestroyedStream: return copy_in_destroyed(calls, victim);
    case Mistake::kFreedMemory: return copy_to_freed(calls, stream, victim);
    case Mistake::kRowsOverlap: return copy_overlapping_rows(calls, stream, victim);
    case Mistake::kBoxesFlags: return copy_flagged_boxes(calls, stream, victim, fail_index);
    default: return make_batch_mistake(calls, mistake, stream, victim, fail_index);
  }
}

}  // namespace braid::stress
