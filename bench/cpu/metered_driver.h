// A driver table that counts braid's calls of each function, and adds up the time inside them.
// For a program of one thread.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>

#include "cuda/driver.h"

namespace braid::bench {

struct Meter {
  const char* function = nullptr;
  uint64_t calls = 0;
  std::chrono::nanoseconds inside{};
};

enum Function : size_t {
#define BRAID_NUMBER(name) k_##name,
  BRAID_DRIVER_FUNCTIONS(BRAID_NUMBER)
#undef BRAID_NUMBER
      kFunctions
};

inline std::array<Meter, kFunctions> meters = {{
#define BRAID_NAME(name) {#name},
    BRAID_DRIVER_FUNCTIONS(BRAID_NAME)
#undef BRAID_NAME
}};

template <size_t function, typename Type>
struct Metered;

template <size_t function, typename... Arguments>
struct Metered<function, CUresult (*)(Arguments...)> {
  static inline CUresult (*real)(Arguments...) = nullptr;

  static CUresult call(Arguments... arguments) {
    const auto begin = std::chrono::steady_clock::now();
    const CUresult result = real(arguments...);
    meters[function].inside += std::chrono::steady_clock::now() - begin;
    ++meters[function].calls;
    return result;
  }
};

template <size_t function, typename Type>
void meter_one(Type& entry) {
  if (entry == nullptr) return;
  Metered<function, Type>::real = entry;
  entry = &Metered<function, Type>::call;
}

/// `real` with every function metered. One a process.
inline cuda::Driver metered(cuda::Driver real) {
#define BRAID_METER(name) meter_one<k_##name>(real.name);
  BRAID_DRIVER_FUNCTIONS(BRAID_METER)
#undef BRAID_METER
  return real;
}

}  // namespace braid::bench
