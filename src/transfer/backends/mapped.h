// Slices to and from memory of other processes of this host that is mapped here (sharing/). Copies
// are this process's own: a slice is over when `post` returns, and nothing is left that could land
// (sharing/sharing.h says what becomes of a copy that its owner has overtaken).
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

  /// What is there already stays.
  void add(uint32_t way, MappedMemory memory);
  /// Its owner is gone, or is of no use any more.
  void drop(uint32_t way);
  /// There is some, and its owner has it registered still.
  bool has_some(uint32_t way) const;
  bool has(uint32_t way, uint64_t address) const;
  size_t count() const { return ranges_.size(); }

  /// Unmaps what its owner has freed, so that its pages are free. Now and then.
  void look(uint64_t now_ns);
  uint64_t next_look_ns() const;

 private:
  const MappedRange* find(uint32_t way, uint64_t address) const;
  Cause move(const MappedRange* range, const Piece& piece) const;

  std::map<std::pair<uint32_t, uint64_t>, MappedRange> ranges_;  // by way and address
  uint64_t looked_ns_ = 0;
};

}  // namespace braid::transfer
