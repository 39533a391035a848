// Where the bytes of a block lie. On the host: always block-first, one range a block. On a GPU: as
// the engine keeps them, block-first or layer-first. SuperInfer section 4.3.1 (figure 11) and 4.3.2
// (figure 14).
//
// Pure values; threads: as any value. Sizes are bytes.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"

namespace braid::kv {

/// The KV cache of a model on one GPU: with tensor parallelism `kv_heads` is the GPU's share.
struct ModelShape {
  uint32_t layers = 0;
  uint32_t kv_heads = 0;
  uint32_t head_size = 0;      ///< elements
  uint32_t element_bytes = 2;  ///< 2: fp16 and bf16; 1: fp8
  uint32_t block_tokens = 16;
};

enum class GpuOrder {
  kBlockFirst,  ///< all layers of a block lie together (figure 14)
  kLayerFirst   ///< all blocks of a layer lie together, K and V of a block side by side (figure 11)
};

/// One contiguous piece of every block: at base + slot * stride on the GPU.
struct Segment {
  uint64_t gpu_base_bytes = 0;  ///< from the beginning of the GPU's cache
  uint64_t gpu_stride_bytes = 0;
  uint64_t host_offset_bytes = 0;  ///< within the block's range
  uint64_t size_bytes = 0;

  bool operator==(const Segment&) const = default;
};

class Layout {
 public:
  /// The layout of a cache of `gpu_slots` blocks. Fails, naming the field, if the shape has no
  /// bytes or its cache exceeds the address space.
  static Result<Layout> of(const ModelShape& shape, GpuOrder order, uint32_t gpu_slots);
  /// The layout of an engine's own cache: any segments; their host offsets follow from their sizes.
  /// Fails for an empty list, and for segments of 0 bytes, with overlapping blocks, or beyond the
  /// address space.
  static Result<Layout> of(std::vector<Segment> segments);

  const std::vector<Segment>& segments() const { return segments_; }
  /// Fails, naming the slots, if there are none, or more than the address space can hold. Check
  /// before asking for the size of so many slots.
  Status check(uint32_t gpu_slots, uint32_t host_slots) const;
  /// Bytes of one block, all layers.
  uint64_t block_bytes() const { return block_bytes_; }
  /// The distance between two slots of the host's arena: a multiple of 256.
  uint64_t host_stride_bytes() const { return host_stride_bytes_; }
  /// Bytes of the GPU's cache, from its beginning to the end of slot `gpu_slots` - 1.
  uint64_t gpu_bytes(uint32_t gpu_slots) const;
  uint64_t host_bytes(uint32_t host_slots) const { return host_stride_bytes_ * host_slots; }

 private:
  explicit Layout(std::vector<Segment> segments);

  std::vector<Segment> segments_;
  uint64_t block_bytes_ = 0;
  uint64_t host_stride_bytes_ = 0;
};

/// A model of the paper's evaluation (section 5.1) by name; null for any other name.
const ModelShape* find_model(const std::string& name);
/// "Llama-3-8B, Qwen2.5-32B, Mixtral-8x7B".
std::string model_names();

}  // namespace braid::kv
