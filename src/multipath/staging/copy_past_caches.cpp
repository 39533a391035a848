#include "multipath/staging/copy_past_caches.h"

#include <algorithm>
#include <cstring>

#if defined(__x86_64__)
#include <emmintrin.h>
#endif

namespace braid::multipath::staging {

#if defined(__x86_64__)

namespace {

constexpr size_t kLineBytes = 64;
constexpr size_t kAheadBytes = 1024;  // the hardware's own prefetch stops at every page

void stream_line(uint8_t* to, const uint8_t* from) {
  const auto* source = reinterpret_cast<const __m128i*>(from);
  auto* destination = reinterpret_cast<__m128i*>(to);
  const __m128i first = _mm_loadu_si128(source), second = _mm_loadu_si128(source + 1);
  const __m128i third = _mm_loadu_si128(source + 2), fourth = _mm_loadu_si128(source + 3);
  _mm_stream_si128(destination, first);
  _mm_stream_si128(destination + 1, second);
  _mm_stream_si128(destination + 2, third);
  _mm_stream_si128(destination + 3, fourth);
}

}  // namespace

void copy_past_caches(uint8_t* to, const uint8_t* from, size_t size_bytes) {
  // Only whole lines of the destination can be stored so.
  const size_t lead = (kLineBytes - reinterpret_cast<uintptr_t>(to) % kLineBytes) % kLineBytes;
  size_t at = std::min(lead, size_bytes);
  std::memcpy(to, from, at);
  for (; at + kLineBytes <= size_bytes; at += kLineBytes) {
    _mm_prefetch(reinterpret_cast<const char*>(from + at + kAheadBytes), _MM_HINT_NTA);
    stream_line(to + at, from + at);
  }
  std::memcpy(to + at, from + at, size_bytes - at);
  _mm_sfence();  // such stores keep no order by themselves
}

#else

void copy_past_caches(uint8_t* to, const uint8_t* from, size_t size_bytes) {
  std::memcpy(to, from, size_bytes);
}

#endif

}  // namespace braid::multipath::staging
