#include "tools/pattern.h"

#include <cstring>

#include "base/split_mix.h"

namespace braid::tools {
namespace {

uint64_t word_at(uint64_t seed, uint64_t index) {
  return split_mix((seed << 40) + index * kSplitMixStep);
}

}  // namespace

void fill_pattern(void* data, uint64_t size_bytes, uint64_t seed, uint64_t offset_bytes) {
  auto* bytes = static_cast<char*>(data);
  const uint64_t words = size_bytes / sizeof(uint64_t), first = offset_bytes / sizeof(uint64_t);
  for (uint64_t i = 0; i < words; ++i) {
    const uint64_t word = word_at(seed, first + i);
    std::memcpy(bytes + i * sizeof word, &word, sizeof word);
  }
  const uint64_t last = word_at(seed, first + words);
  std::memcpy(bytes + words * sizeof last, &last, size_bytes % sizeof last);
}

bool has_pattern(const void* data, uint64_t size_bytes, uint64_t seed, uint64_t offset_bytes) {
  const auto* bytes = static_cast<const char*>(data);
  const uint64_t words = size_bytes / sizeof(uint64_t), first = offset_bytes / sizeof(uint64_t);
  uint64_t wrong = 0;
  for (uint64_t i = 0; i < words; ++i) {
    uint64_t word = 0;
    std::memcpy(&word, bytes + i * sizeof word, sizeof word);
    wrong |= word ^ word_at(seed, first + i);
  }
  const uint64_t last = word_at(seed, first + words);
  return wrong == 0 &&
         std::memcmp(bytes + words * sizeof last, &last, size_bytes % sizeof last) == 0;
}

}  // namespace braid::tools
