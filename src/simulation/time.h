// Virtual time: whole picoseconds since the simulation began, so that equal programs give
// bit-identical times.
#pragma once

#include <cmath>
#include <cstdint>
#include <limits>

namespace braid::simulation {

using Time = int64_t;  ///< picoseconds; 2^63 of them are 106 days

inline constexpr Time kForever = std::numeric_limits<Time>::max();

inline Time from_us(double us) { return static_cast<Time>(std::llround(us * 1e6)); }
inline uint64_t to_ns(Time time) { return static_cast<uint64_t>(time) / 1000; }
inline Time from_ns(uint64_t ns) { return static_cast<Time>(ns) * 1000; }
inline double to_us(Time time) { return static_cast<double>(time) * 1e-6; }

/// 10^9 bytes a second are this many bytes a picosecond.
inline constexpr double kBytesPerPicosecond = 1e-3;

}  // namespace braid::simulation
