#include "model.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace kv_push {
namespace {

/// splitmix64.
uint64_t mix(uint64_t value) {
  value += 0x9e3779b97f4a7c15;
  value = (value ^ (value >> 30)) * 0xbf58476d1ce4e5b9;
  value = (value ^ (value >> 27)) * 0x94d049bb133111eb;
  return value ^ (value >> 31);
}

Bytes content(uint64_t seed, size_t size_bytes) {
  Bytes bytes(size_bytes);
  for (size_t i = 0; i < size_bytes; i += sizeof seed) {
    const uint64_t word = mix(seed + i);
    std::memcpy(&bytes[i], &word, sizeof word);
  }
  return bytes;
}

}  // namespace

uint32_t step_count(uint32_t page_count) {
  return (page_count + kChunkPages - 1) / kChunkPages * kLayers;
}

Step step_at(uint32_t index, uint32_t page_count) {
  const uint32_t first_page = index / kLayers * kChunkPages;
  return {index % kLayers, first_page, std::min(kChunkPages, page_count - first_page)};
}

uint64_t immediates_of_request(uint32_t page_count) {
  uint64_t sum = Fabric::immediates_of_write(kTailBytes);
  for (uint32_t i = 0; i < step_count(page_count); ++i)
    sum += Fabric::immediates_of_pages(kPageBytes, step_at(i, page_count).page_count);
  return sum;
}

Bytes page_content(uint64_t dispatch, uint32_t layer, uint32_t position) {
  return content(mix(mix(dispatch) + layer * kRequestPagesMax + position), kPageBytes);
}

Bytes tail_content(uint64_t dispatch) { return content(mix(~dispatch), kTailBytes); }

void die(const std::string& why) {
  std::fflush(stdout);
  std::fprintf(stderr, "kv_push: %s\n", why.c_str());
  std::_Exit(1);  // threads of the engine may be in a callback
}

}  // namespace kv_push
