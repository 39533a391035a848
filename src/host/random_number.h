// Unpredictable numbers: names, keys and nonces.
#pragma once

#include <sys/random.h>

#include <cstdint>

namespace braid {

/// Never 0. (std::random_device would need a newer glibc than braid does.)
inline uint64_t random_number() {
  uint64_t number = 0;
  while (number == 0 && getrandom(&number, sizeof number, 0) != sizeof number) number = 0;
  return number;
}

}  // namespace braid
