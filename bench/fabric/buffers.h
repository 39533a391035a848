// The memory that is written from and to: files in memory, so that the process of each contender
// maps the very same pages. Those of 4 KiB are made as Fabric::allocate_memory makes them, so that
// braid's engines can share them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>

#include "base/status.h"
#include "bench/fabric/load.h"
#include "fabric/local/shared_memory.h"
#include "host/shared_pages.h"

namespace braid::bench {

/// The target in the process that owns it.
struct TargetMemory {
  MappedPages huge;
  std::unique_ptr<fabric::local::SharedMemory> shared;  ///< null: the pages are huge
  std::span<std::byte> bytes() const { return shared != nullptr ? shared->bytes() : huge.bytes(); }
};

class Buffers {
 public:
  /// Of huge pages: an error where the kernel has too few of them.
  static Result<Buffers> map(uint64_t size_bytes, bool are_pages_huge);

  std::span<std::byte> source() const { return source_.pages.bytes(); }
  std::span<std::byte> target() const { return target_.pages.bytes(); }
  int source_file() const { return source_.file.get(); }
  int target_file() const { return target_.file.get(); }
  /// In a child process, which does not inherit the mapping.
  Result<TargetMemory> map_target_again() const;

  /// Makes the target unlike the source, whose bytes are never 0.
  void clear(const Load& load) const;
  /// When all bytes of the load were seen in the target, by std::chrono::steady_clock. None, if
  /// that is not before the deadline. A contender that says too early that it is done is timed by
  /// this.
  std::optional<uint64_t> arrived_ns(const Load& load, uint64_t deadline_ns) const;

 private:
  Buffers(SharedPages source, SharedPages target, bool are_pages_huge)
      : source_(std::move(source)), target_(std::move(target)), are_pages_huge_(are_pages_huge) {}
  bool has_arrived(const Load& load) const;

  SharedPages source_, target_;
  bool are_pages_huge_;
};

/// Of std::chrono::steady_clock.
uint64_t now_ns();

}  // namespace braid::bench
