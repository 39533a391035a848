// FNV-1a: numbers for bytes, the same in every process and in every version of braid, which compare
// them. They tell apart what nobody has forged.
#pragma once

#include <cstdint>
#include <string_view>

namespace braid {

inline constexpr uint64_t kFnvStart = 0xcbf29ce484222325;

/// `hash`, and behind it a byte, or another number of up to 64 bits.
constexpr uint64_t fnv_step(uint64_t hash, uint64_t number) {
  return (hash ^ number) * 0x100000001b3;
}

constexpr uint64_t fnv(std::string_view bytes) {
  uint64_t hash = kFnvStart;
  for (const char byte : bytes) hash = fnv_step(hash, static_cast<uint8_t>(byte));
  return hash;
}

}  // namespace braid
