// What a World is made of: for its own files alone.
#pragma once

#include "transfer/world.h"

namespace braid::transfer::test {

inline constexpr uint64_t kUs = 1'000, kMs = 1'000'000;
inline constexpr uint64_t kRegionBytes = 32 << 10;

enum Fault : int {
  kFreezes,  // what is under way lands once it is mended
  kLoses,    // what is under way is gone, and nobody says so
  kFails,    // what is posted or under way fails; some of it may still land
  kFull,     // what is posted is refused
  kSlow,
  kFaults
};

struct World::Path {
  uint64_t peer = 0;
  size_t local = 0, remote = 0;
  double gbps = 1;
  uint64_t latency_ns = 0;
  uint64_t busy_until_ns = 0;
  int fault = kFaults;  // none
  uint64_t epoch = 0;   // counts fences: older flights do not land
  uint64_t faulty_ns = 0;
  bool was_ever_faulty = false;
  bool is_excused_to_fence = false;  // a fault's end has not been seen by a fence yet
  bool is_fencing = false;
  bool is_retired = false;
  bool is_forgotten = false;
  std::vector<FlightPointer> held;
};

struct World::Region {
  std::vector<uint8_t> source, target;
  uint64_t request = 0;  // 0: it is free
  uint64_t size_bytes = 0;
  uint64_t deadline_ns = kNever;
  size_t way = 0;
  bool is_cancelled = false;
  bool has_lost_peer = false;
  std::vector<bool> told;  // bytes that the scheduler was told of
};

struct World::Flight {
  uint64_t posting = 0;
  uint64_t request = 0;  // 0: a probe
  size_t region = 0;
  uint64_t offset = 0;
  uint64_t size_bytes = 0;
  uint32_t path = 0;
  uint64_t epoch = 0;
};

struct World::Event {
  uint64_t when_ns;
  uint64_t order;
  std::function<void()> action;
  bool operator>(const Event& other) const {
    return when_ns != other.when_ns ? when_ns > other.when_ns : order > other.order;
  }
};

}  // namespace braid::transfer::test
