// Moves slices within this process, to and from its own segment. Rights are checked here too.
#pragma once

#include "transfer/backends/own.h"
#include "transfer/buffers.h"

namespace braid::transfer {

class MemoryBackend final : public OwnBackend {
 public:
  /// `buffers` must outlive the backend.
  explicit MemoryBackend(const Buffers& buffers) : buffers_(buffers) {}

  void post(uint32_t way, const Piece& piece) override;

 private:
  const Buffers& buffers_;
};

}  // namespace braid::transfer
