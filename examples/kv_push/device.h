// Where a KV cache lies, and who computes it: a GPU with a stream, or this host. Prefiller and
// decoder are the same code for both.
#pragma once

#include <braid/fabric_watcher.h>

#include <memory>

#include "model.h"

namespace kv_push {

class Device {
 public:
  virtual ~Device() = default;
  /// Stays until the device is destroyed.
  virtual std::byte* allocate(size_t size_bytes) = 0;
  /// One after the other; they may end later.
  virtual void write(std::byte* to, const Bytes& bytes) = 0;
  /// Once all writes before it have ended.
  virtual void signal(uint64_t* word, uint64_t value) = 0;
  /// Waits until all writes have ended.
  virtual Bytes read(const std::byte* from, size_t size_bytes) = 0;
  /// For a watcher of a word that it signals, in the thread that has opened it.
  virtual braid::FabricWatcher::Memory word_memory() const = 0;
};

std::unique_ptr<Device> open_host();
/// The first GPU, through the driver. An error where there is none.
braid::Result<std::unique_ptr<Device>> open_gpu();

}  // namespace kv_push
