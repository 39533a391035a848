#include "kv/layout.h"

#include <algorithm>
#include <array>
#include <utility>

namespace braid::kv {
namespace {

constexpr uint64_t kHostAlignmentBytes = 256;
constexpr uint64_t kAddressSpaceBytes = uint64_t{1} << 47;

struct NamedModel {
  const char* name;
  ModelShape shape;
};

// From the models' own config.json: num_hidden_layers, num_key_value_heads, head_dim, dtype bf16.
constexpr std::array kModels{
    NamedModel{"Llama-3-8B", {.layers = 32, .kv_heads = 8, .head_size = 128}},
    NamedModel{"Qwen2.5-32B", {.layers = 64, .kv_heads = 8, .head_size = 128}},
    NamedModel{"Mixtral-8x7B", {.layers = 32, .kv_heads = 8, .head_size = 128}},
};

Status check_shape(const ModelShape& shape, uint32_t gpu_slots) {
  const std::array<std::pair<const char*, uint32_t>, 6> fields{
      {{"layers", shape.layers},
       {"kv_heads", shape.kv_heads},
       {"head_size", shape.head_size},
       {"element_bytes", shape.element_bytes},
       {"block_tokens", shape.block_tokens},
       {"gpu_slots", gpu_slots}}};
  for (const auto& [name, value] : fields)
    if (value == 0)
      return Status::error(std::string(name) + " is 0", "Give the model's own number");
  long double cache_bytes = 2;  // K and V
  for (const auto& [name, value] : fields) cache_bytes *= value;
  if (cache_bytes > static_cast<long double>(kAddressSpaceBytes))
    return Status::error(
        "a cache of gpu_slots blocks of this model is larger than the address space",
        "Give fewer gpu_slots");
  return {};
}

}  // namespace

Result<Layout> Layout::of(const ModelShape& shape, GpuOrder order, uint32_t gpu_slots) {
  if (Status wrong = check_shape(shape, gpu_slots); !wrong.ok()) return wrong;
  const uint64_t segment_bytes =
      uint64_t{2} * shape.block_tokens * shape.kv_heads * shape.head_size * shape.element_bytes;
  if (order == GpuOrder::kBlockFirst) {
    const uint64_t block_bytes = segment_bytes * shape.layers;
    return of({{.gpu_stride_bytes = block_bytes, .size_bytes = block_bytes}});
  }
  std::vector<Segment> segments;
  for (uint64_t layer = 0; layer < shape.layers; ++layer)
    segments.push_back({.gpu_base_bytes = layer * segment_bytes * gpu_slots,
                        .gpu_stride_bytes = segment_bytes,
                        .size_bytes = segment_bytes});
  return of(std::move(segments));
}

Result<Layout> Layout::of(std::vector<Segment> segments) {
  if (segments.empty()) return Status::error("a layout without segments");
  uint64_t block_bytes = 0;
  for (size_t i = 0; i < segments.size(); ++i) {
    const auto& [base_bytes, stride_bytes, offset_bytes, size_bytes] = segments[i];
    const std::string which = "segment " + std::to_string(i);
    if (size_bytes == 0) return Status::error(which + " has no bytes");
    if (stride_bytes < size_bytes)
      return Status::error(which + ": gpu_stride_bytes is less than size_bytes, so blocks overlap");
    if (base_bytes > kAddressSpaceBytes || stride_bytes > kAddressSpaceBytes ||
        (block_bytes += size_bytes) > kAddressSpaceBytes)
      return Status::error(which + " leaves the address space", "Give sizes in bytes");
  }
  return Layout(std::move(segments));
}

Layout::Layout(std::vector<Segment> segments) : segments_(std::move(segments)) {
  for (Segment& segment : segments_) {
    segment.host_offset_bytes = block_bytes_;
    block_bytes_ += segment.size_bytes;
  }
  host_stride_bytes_ =
      (block_bytes_ + kHostAlignmentBytes - 1) / kHostAlignmentBytes * kHostAlignmentBytes;
}

Status Layout::check(uint32_t gpu_slots, uint32_t host_slots) const {
  const auto fits = [](uint64_t first_bytes, uint64_t stride_bytes, uint32_t slots) {
    return first_bytes <= kAddressSpaceBytes &&
           stride_bytes <= (kAddressSpaceBytes - first_bytes) / slots;
  };
  if (gpu_slots == 0 || host_slots == 0)
    return Status::error("gpu_slots or host_slots is 0", "Give both sides room for blocks");
  for (const Segment& segment : segments_)
    if (!fits(segment.gpu_base_bytes, segment.gpu_stride_bytes, gpu_slots))
      return Status::error("a cache of gpu_slots blocks is larger than the address space",
                           "Give fewer gpu_slots");
  if (!fits(0, host_stride_bytes_, host_slots))
    return Status::error("a pool of host_slots blocks is larger than the address space",
                         "Give fewer host_slots");
  return {};
}

uint64_t Layout::gpu_bytes(uint32_t gpu_slots) const {
  uint64_t end_bytes = 0;
  for (const Segment& segment : segments_)
    if (gpu_slots > 0)
      end_bytes = std::max(end_bytes, segment.gpu_base_bytes + segment.size_bytes +
                                          segment.gpu_stride_bytes * (gpu_slots - 1));
  return end_bytes;
}

const ModelShape* find_model(const std::string& name) {
  for (const NamedModel& model : kModels)
    if (name == model.name) return &model.shape;
  return nullptr;
}

std::string model_names() {
  std::string names;
  for (const NamedModel& model : kModels)
    names += (names.empty() ? "" : ", ") + std::string(model.name);
  return names;
}

}  // namespace braid::kv
