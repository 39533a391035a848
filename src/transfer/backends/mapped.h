// Moves slices to and from memory of other processes of this host that is mapped here (sharing/).
// This process makes the copies itself: a slice has ended when `post` returns, and nothing is left
// that could land. (sharing/sharing.h says what happens if the owner frees the memory during a
// copy.)
#pragma once

#include <cstdint>
#include <map>
#include <utility>

#include "transfer/backends/own.h"
#include "transfer/sharing/mapping.h"

namespace braid::transfer {

class MappedBackend final : public OwnBackend {
 public:
  void post(uint32_t way, const Piece& piece) override;

  /// Adds ranges. Ranges that are there already stay.
  void add(uint32_t way, MappedMemory memory);
  /// Unmaps the way's memory: its owner is gone, or nobody uses the owner any more.
  void drop(uint32_t way);
  /// Whether some memory is mapped and still registered by its owner.
  bool has_some(uint32_t way) const;
  bool has(uint32_t way, uint64_t address) const;
  size_t count() const { return ranges_.size(); }

  /// Unmaps memory that its owner has freed, so that its pages become free. To be called now and
  /// then.
  void look(uint64_t now_ns);
  uint64_t next_look_ns() const;

 private:
  const MappedRange* find(uint32_t way, uint64_t address) const;
  Cause move(const MappedRange* range, const Piece& piece) const;

  std::map<std::pair<uint32_t, uint64_t>, MappedRange> ranges_;  // by way and address
  uint64_t looked_ns_ = 0;
};

}  // namespace braid::transfer
