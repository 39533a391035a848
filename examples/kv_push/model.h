// What prefillers and decoders both know: the shape of the KV cache, in which order it is computed,
// and here also its bytes, so that the decoder can compare each of them.
#pragma once

#include <braid/fabric.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace kv_push {

using braid::Fabric;
using Bytes = Fabric::ByteList;

constexpr uint32_t kLayers = 8;
constexpr uint32_t kPageBytes = 32 << 10;  // the keys and values of one layer for a few tokens
constexpr uint32_t kChunkPages = 4;        // chunked prefill computes so many in each layer
constexpr uint32_t kRequestPagesMax = 16;
constexpr uint32_t kTailBytes = 16 << 10;  // the context: the last token's hidden state and logits

/// One layer of one chunk. The watched word counts them.
struct Step {
  uint32_t layer;
  uint32_t first_page;  // of the request's pages
  uint32_t page_count;
};
uint32_t step_count(uint32_t page_count);
Step step_at(uint32_t index, uint32_t page_count);

/// How often the immediate of a request arrives: once for each page of each layer and once for the
/// tail, as long as one slice holds each of them.
uint64_t immediates_of_request(uint32_t page_count);

/// A cache has all pages of a layer, and then those of the next. So one paged write carries the
/// pages of one layer.
constexpr uint64_t cache_bytes(uint32_t page_count) {
  return uint64_t{kLayers} * page_count * kPageBytes;
}
constexpr uint64_t page_offset(uint32_t layer, uint32_t page, uint32_t page_count) {
  return (uint64_t{layer} * page_count + page) * kPageBytes;
}
inline Fabric::Pages pages_of_layer(std::vector<uint32_t> indices, uint32_t layer,
                                    uint32_t page_count) {
  return {std::move(indices), kPageBytes, page_offset(layer, 0, page_count)};
}

/// What prefill makes of a dispatch: the bytes of its page `position` in a layer, and of its tail.
/// No two dispatches have the same, so that what an earlier one writes late is seen.
Bytes page_content(uint64_t dispatch, uint32_t layer, uint32_t position);
Bytes tail_content(uint64_t dispatch);

/// This program ends at the first error that it does not expect.
[[noreturn]] void die(const std::string& why);
inline void must(const braid::Status& status) {
  if (!status.ok()) die(status.message());
}
template <typename T>
T must(braid::Result<T> result) {
  must(result.status());
  return std::move(result).value();
}

}  // namespace kv_push
