// Copies by braid's library, over every link of the server (include/braid/braid.h), with or without
// kernels on the GPU whose cache it is: braid_copy_batch, or braid_copy_batch_sparing.
#pragma once

#include <cstddef>
#include <vector>

#include "braid/braid.h"
#include "kv/copier.h"

namespace braid::kv {

/// An engine, and the functions of braid.h in the library that opened it.
struct BraidCalls {
  braid_engine* engine = nullptr;
  decltype(&braid_copy_batch) copy_batch = nullptr;
  decltype(&braid_last_error) last_error = nullptr;
  decltype(&braid_last_cuda_error) last_cuda_error = nullptr;
};

/// Takes the functions of the library that this program is linked with.
inline BraidCalls calls_of(braid_engine* engine,
                           decltype(&braid_copy_batch) copy_batch = braid_copy_batch) {
  return {engine, copy_batch, braid_last_error, braid_last_cuda_error};
}

class BraidCopier final : public Copier {
 public:
  /// The caller owns the engine, which outlives this.
  explicit BraidCopier(const BraidCalls& braid) : braid_(braid) {}
  Status copy(std::span<const library::Copy> copies, CUstream stream, Urgency urgency) override;

  Carried carried() const override { return carried_; }

 private:
  void list(std::span<const library::Copy> copies);

  const BraidCalls braid_;
  Carried carried_;
  // The entries of the latest batch, then those of larger ones before it.
  std::vector<void*> destinations_;
  std::vector<const void*> sources_;
  std::vector<size_t> sizes_bytes_;
};

}  // namespace braid::kv
