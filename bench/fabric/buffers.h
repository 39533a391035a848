// The memory that is written from and to: files in memory, so that the process of each contender
// maps the very same pages.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "base/status.h"
#include "bench/fabric/load.h"

namespace braid::bench {

class Buffers {
 public:
  /// Of huge pages: an error where the kernel has too few of them.
  static Result<Buffers> map(uint64_t size_bytes, bool are_pages_huge);
  Buffers(Buffers&& other) noexcept;
  Buffers& operator=(Buffers&&) = delete;
  ~Buffers();

  std::span<std::byte> source() const { return source_.memory; }
  std::span<std::byte> target() const { return target_.memory; }
  int source_file() const { return source_.file; }
  int target_file() const { return target_.file; }

  /// Makes the target unlike the source, whose bytes are never 0.
  void clear(const Load& load) const;
  /// When all bytes of the load were seen in the target, by std::chrono::steady_clock. None, if
  /// that is not before the deadline. A contender that says too early that it is done is timed by
  /// this.
  std::optional<uint64_t> arrived_ns(const Load& load, uint64_t deadline_ns) const;

 private:
  struct Part {
    int file = -1;
    std::span<std::byte> memory;
  };
  Buffers(Part source, Part target) : source_(source), target_(target) {}
  static Result<Part> map_part(const char* name, uint64_t size_bytes, bool are_pages_huge);
  bool has_arrived(const Load& load) const;

  Part source_, target_;
};

/// Of std::chrono::steady_clock.
uint64_t now_ns();

}  // namespace braid::bench
