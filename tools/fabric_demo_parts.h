// What the processes of `braid fabric demo` share, and its parts.
//
// Two owners order writes of a writer: each order has a piece of the owner's memory, an immediate
// and a number. The bytes of a write follow from its number, so the owner can tell every one.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace braid::tools {

inline constexpr size_t kDemoRails = 4;
inline constexpr size_t kDemoOwners = 2;
inline constexpr size_t kDemoWriteBytes = 4 << 20;
inline constexpr size_t kDemoSamplesMax = 4096;

inline std::string demo_address(size_t rail) { return "127.0.0." + std::to_string(rail + 1); }

/// How far the writer is, at one time.
struct DemoSample {
  double seconds = 0;
  std::array<std::array<uint64_t, kDemoRails>, kDemoOwners> bytes{};
  std::array<std::array<uint8_t, kDemoRails>, kDemoOwners> states{};  // RailState
  std::array<uint64_t, kDemoRails> failures{};
};

struct DemoShared {
  struct Owner {
    std::atomic<size_t> address_bytes;  // 0: not yet
    std::byte address[1024];
    std::atomic<uint64_t> verified;     // writes, whose every byte was right
    std::atomic<uint64_t> given_up;     // writes that did not arrive
    std::atomic<uint64_t> quarantined;  // bytes
    std::atomic<uint64_t> wrong;        // bytes
  };
  std::atomic<bool> kills_rail;
  std::atomic<bool> is_ending;     // for the writer
  std::atomic<bool> writer_ended;  // for the owners
  std::array<Owner, kDemoOwners> owners;
  std::atomic<size_t> sample_count;
  std::array<DemoSample, kDemoSamplesMax> samples;
};

/// All bytes that are ever written: those of a write begin at a place that follows from its number.
std::span<const std::byte> demo_bytes(std::span<const std::byte> base, uint64_t number);
inline constexpr size_t kDemoBaseBytes = kDemoWriteBytes + (1 << 20);

inline constexpr size_t kKilledRail = 2;

/// Until is_ending; the child's exit code.
int run_demo_owner(DemoShared& shared, size_t index, std::span<std::byte> base);
int run_demo_writer(DemoShared& shared, std::span<std::byte> base, bool corrupts);

/// What happened, and when.
struct DemoMark {
  double seconds = 0;
  std::string what;
};
std::string demo_svg(std::span<const DemoSample> samples, const std::vector<DemoMark>& marks);

}  // namespace braid::tools
