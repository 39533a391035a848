// Slices within this process: its own segment. Rights hold here too.
#pragma once

#include <utility>
#include <vector>

#include "transfer/backend.h"
#include "transfer/buffers.h"

namespace braid::transfer {

class MemoryBackend final : public Backend {
 public:
  /// `buffers` stays.
  explicit MemoryBackend(const Buffers& buffers) : buffers_(buffers) {}

  void post(uint32_t way, const Piece& piece) override;
  void probe(uint32_t way, uint64_t id) override;
  void fence(uint32_t way) override;
  bool step(uint64_t now_ns) override;
  std::vector<BackendEvent> take_events() override { return std::exchange(events_, {}); }
  uint64_t next_deadline_ns() const override;
  std::vector<int> wait_descriptors() override { return {}; }
  bool has_to_be_asked() const override { return false; }
  bool arm() override { return events_.empty(); }

 private:
  const Buffers& buffers_;
  std::vector<BackendEvent> events_;
};

}  // namespace braid::transfer
