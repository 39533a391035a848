// What each of two processes has (two_processes.h, peer.cpp): a rail, and memory to write.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "fabric/domain.h"
#include "fabric/local/shared_memory.h"

namespace braid::test {
class DeviceBuffer;
}

namespace braid::fabric::test {

/// `provider`: libfabric's; or the same with "+gpu", which is staged, or with "+endpoints", which
/// has several; or "local"; or "local+mapped", whose memory peers map.
Result<std::unique_ptr<Domain>> open_process_rail(const std::string& provider);

/// Of the host; on a GPU of the emulated server where the provider carries such memory.
class ProcessMemory {
 public:
  /// All zero. `gpu`: which, if any.
  ProcessMemory(const std::string& provider, int gpu, size_t size_bytes);
  ~ProcessMemory();
  ProcessMemory(ProcessMemory&&) noexcept;

  MutableBytes bytes();
  void fill(std::byte value);
  bool is_all(std::byte value) const;

 private:
  size_t size_bytes_;
  std::vector<std::byte> host_;
  std::unique_ptr<local::SharedMemory> shared_;
  std::unique_ptr<braid::test::DeviceBuffer> buffer_;
};

}  // namespace braid::fabric::test
