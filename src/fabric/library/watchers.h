// Words of 64 bits that a GPU or a thread writes, and that the engine's driver polls. A change
// makes one event, with the previous value and the latest: values in between may be missed.
// Source: 3.3 of the paper ("UVM Watcher").
#pragma once

#include <cstdint>
#include <memory>

#include "fabric/library/events.h"
#include "fabric/slot_map.h"

namespace braid::fabric {

/// One word, 0 at first, at an address of its own cache line.
class Word {
 public:
  virtual ~Word() = default;
  virtual uint64_t* address() = 0;
};

/// Plain host memory, for threads.
std::unique_ptr<Word> make_host_word();
/// Pinned host memory, mapped for all GPUs at the same address, in the context that is current in
/// this thread. Makes no context, and does not load the driver.
Result<std::unique_ptr<Word>> make_gpu_word();

/// Not synchronised. Words are freed when they are released, or with the object.
class Watchers {
 public:
  struct Added {
    uint64_t watcher = 0;
    uint64_t* word = nullptr;
  };
  /// A released watcher: its events must end before its word is freed.
  struct Released {
    std::shared_ptr<Merged> merged;
    std::unique_ptr<Word> word;
  };

  Added add(std::unique_ptr<Word> word, const Sink& sink);
  Result<Released> release(uint64_t watcher);
  bool is_empty() const { return watchers_.size() == 0; }
  /// True if any word has changed.
  bool poll(Events& events);

 private:
  struct Watcher {
    std::unique_ptr<Word> word;
    Sink sink;
    std::shared_ptr<Merged> merged;
    uint64_t seen = 0;
  };

  SlotMap<Watcher> watchers_;
};

}  // namespace braid::fabric
