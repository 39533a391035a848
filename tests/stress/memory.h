// A region while its program runs: allocated as its kind says, filled, freed.
#pragma once

#include <memory>

#include "stress/calls.h"
#include "stress/program.h"

namespace braid::stress {

/// A number that tells contents apart.
uint64_t hash_bytes(const uint8_t* bytes, uint64_t size_bytes);
uint64_t mix(uint64_t hash, uint64_t more);

/// Calls are made in the context that is current, which must be the region's GPU's.
class Memory {
 public:
  Memory(const Calls& calls, const Region& region) : calls_(calls), region_(region) {}

  CUresult allocate();
  CUresult allocate_in(CUstream stream);  ///< of a pool
  CUresult free();
  CUresult free_in(CUstream stream);

  /// By the CPU, or by a copy that waits.
  CUresult fill(uint64_t seed);
  /// The content, likewise.
  CUresult hash(uint64_t& hash) const;

  uint8_t* host() const { return host_; }
  CUdeviceptr address() const { return address_; }

 private:
  CUresult allocate_mapped();
  CUresult free_mapped();
  CUresult allocate_pageable();

  const Calls& calls_;
  const Region region_;
  std::unique_ptr<uint8_t[]> pages_;
  uint8_t* host_ = nullptr;
  CUdeviceptr address_ = 0;
  uint64_t mapped_bytes_ = 0;
  CUmemGenericAllocationHandle physical_ = 0;
};

}  // namespace braid::stress
