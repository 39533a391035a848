// A prefiller: computes the KV pages of one request after the other, and pushes those of each layer
// as soon as the watched word says that they are there.
#pragma once

#include <braid/fabric_watcher.h>

#include <atomic>
#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "device.h"
#include "messages.h"

namespace kv_push {

class Prefiller {
 public:
  struct Options {
    std::string name;
    bool corrupts = false;  // writes a wrong byte, which the decoder has to find
  };
  Prefiller(Fabric& fabric, Device& device, Options options);
  ~Prefiller();

  /// Joins the decoder at this address and serves it until it disconnects. `is_leaving`: it is to
  /// send nothing more, and to disconnect once all that it has sent is done.
  void serve(const Bytes& decoder, const std::atomic<bool>& is_leaving);

 private:
  /// One request. Its mutex is the cancellation token: whoever has set `is_cancelled` under it
  /// knows that nothing more is posted.
  struct Push {
    uint32_t page_count() const { return static_cast<uint32_t>(dispatch.pages.size()); }
    bool is_stopped() {
      const std::lock_guard token(mutex);
      return is_cancelled;
    }
    void stop() {
      const std::lock_guard token(mutex);
      is_cancelled = true;
      posted.notify_all();
    }

    Dispatch dispatch;
    Fabric::Target cache{};
    Fabric::Target tail{};
    uint64_t first_word = 0;  // the watched word before its first step
    std::mutex mutex;
    std::condition_variable posted;
    bool is_cancelled = false;
    uint32_t steps_posted = 0;
    std::vector<Fabric::Ticket> tickets;
  };

  void handle(const Bytes& bytes);
  void start(Dispatch dispatch);
  void cancel(uint64_t number);

  void work();
  bool prefill(Push& push);
  void compute(const Push& push, uint32_t step);
  void post_steps(uint64_t old_word, uint64_t word);
  void post(Push& push, uint32_t step);
  void post_tail(Push& push);
  static void posted(Push& push, const braid::Result<Fabric::Ticket>& ticket);
  bool drain(const Push& push);

  Fabric& fabric_;
  Device& device_;
  Options options_;
  std::byte* memory_;  // the cache of one request, then its tail
  Fabric::Region region_;
  Fabric::Peer decoder_{};

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::shared_ptr<Push>> pushes_;  // the first is next, or being computed
  std::shared_ptr<Push> computed_;            // none: the watched word is nobody's
  bool is_ending_ = false;

  uint64_t word_ = 0;  // what the device was last asked to write there
  std::unique_ptr<braid::FabricWatcher> watcher_;
  std::thread worker_;
};

}  // namespace kv_push
