// A word of 64 bits that a GPU or a thread writes, and that a Fabric watches: from within a CUDA
// graph a program says how far it is, and a callback writes what is ready. fabric_abi.h
// (braid_fabric_add_watcher) says what may go unseen, how often the word is looked at, and what
// memory it lies in. C++17 and newer.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <utility>

#include "braid/fabric.h"

namespace braid {

/// Destroy it before its Fabric, and once nothing writes the word any more. Its end waits for the
/// callback, unless it is within it.
class FabricWatcher {
 public:
  enum class Memory { kHost = BRAID_FABRIC_WORD_HOST, kGpu = BRAID_FABRIC_WORD_GPU };
  /// Gets the value before and the latest one. Runs where all callbacks of the Fabric run.
  using Callback = std::function<void(uint64_t, uint64_t)>;

  /// Without a callback, an Event is queued for Fabric::take_events.
  static Result<std::unique_ptr<FabricWatcher>> open(Fabric& fabric, Memory memory,
                                                     Callback callback) {
    const bool is_called = callback != nullptr;
    auto watcher = std::make_unique<FabricWatcher>(Key(), fabric, std::move(callback));
    if (braid_fabric_add_watcher(fabric.get(), static_cast<int>(memory),
                                 is_called ? &FabricWatcher::run : nullptr, watcher.get(),
                                 &watcher->word_, &watcher->number_) != BRAID_OK)
      return Status::error(braid_fabric_last_error());
    return watcher;
  }
  ~FabricWatcher() {
    if (word_ != nullptr) (void)braid_fabric_release_watcher(fabric_, number_);
  }
  FabricWatcher(const FabricWatcher&) = delete;
  FabricWatcher& operator=(const FabricWatcher&) = delete;

  uint64_t* word() const { return word_; }
  /// Fabric::Event::id of its events.
  uint64_t number() const { return number_; }

 private:
  struct Key {};

 public:
  FabricWatcher(Key, Fabric& fabric, Callback callback)
      : fabric_(fabric.get()), callback_(std::make_shared<Callback>(std::move(callback))) {}

 private:
  static void run(const Fabric::Event* event) noexcept {
    // It may destroy the watcher.
    const auto callback = static_cast<FabricWatcher*>(event->user)->callback_;
    (*callback)(event->old_value, event->value);
  }

  braid_fabric* fabric_;
  std::shared_ptr<Callback> callback_;
  uint64_t* word_ = nullptr;
  uint64_t number_ = 0;
};

}  // namespace braid
