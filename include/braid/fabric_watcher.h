// A word of 64 bits that a GPU or a thread writes, and that a Fabric watches. A program reports its
// progress from within a CUDA graph this way, and a callback then writes the pages that are ready.
// fabric_abi.h (braid_fabric_add_watcher) says which values may go unseen, how often the engine
// looks, and in which memory the word lies. C++17 and newer.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <utility>

#include "braid/fabric.h"

namespace braid {

/// Destroy it before its Fabric, once nothing writes the word any more. The destructor waits for
/// the callback, unless the callback itself destroys the watcher.
class FabricWatcher {
 public:
  enum class Memory { kHost = BRAID_FABRIC_WORD_HOST, kGpu = BRAID_FABRIC_WORD_GPU };
  /// The callback gets the value before and the latest one. It runs where all callbacks of the
  /// Fabric run.
  using Callback = std::function<void(uint64_t, uint64_t)>;

  /// Without a callback, an Event is queued for Fabric::take_events.
  static Result<std::unique_ptr<FabricWatcher>> open(Fabric& fabric, Memory memory,
                                                     Callback callback) {
    const bool is_called = callback != nullptr;
    auto watcher = std::make_unique<FabricWatcher>(Key(), fabric, std::move(callback));
    const braid_status added = braid_fabric_add_watcher(
        fabric.get(), static_cast<int>(memory), is_called ? &FabricWatcher::run : nullptr,
        watcher.get(), &watcher->word_, &watcher->number_);
    if (added != BRAID_OK) return Status::of(added, braid_fabric_last_error());
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
