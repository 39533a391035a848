#include "stress/memory.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "stress/random.h"

namespace braid::stress {
namespace {

void fill_random(uint8_t* to, uint64_t size_bytes, uint64_t seed) {
  Random random(seed);
  for (uint64_t at = 0; at < size_bytes; at += sizeof(uint64_t)) {
    const uint64_t word = random.next();
    std::memcpy(to + at, &word, std::min<uint64_t>(sizeof word, size_bytes - at));
  }
}

}  // namespace

uint64_t mix(uint64_t hash, uint64_t more) {
  hash = (hash ^ more) * 0x9fb21c651e98df25;
  return hash ^ (hash >> 32);
}

uint64_t hash_bytes(const uint8_t* bytes, uint64_t size_bytes) {
  uint64_t hash = size_bytes;
  for (uint64_t at = 0; at < size_bytes; at += sizeof(uint64_t)) {
    uint64_t word = 0;
    std::memcpy(&word, bytes + at, std::min<uint64_t>(sizeof word, size_bytes - at));
    hash = mix(hash, word);
  }
  return hash;
}

CUresult Memory::allocate_pageable() {
  pages_ = std::make_unique_for_overwrite<uint8_t[]>(region_.size_bytes);
  host_ = pages_.get();
  return CUDA_SUCCESS;
}

CUresult Memory::allocate() {
  const uint64_t size = region_.size_bytes;
  CUresult result = CUDA_ERROR_INVALID_VALUE;
  switch (region_.kind) {
    case RegionKind::kPinned: {
      void* memory = nullptr;
      result = calls_.pin(&memory, size, CU_MEMHOSTALLOC_PORTABLE);
      host_ = static_cast<uint8_t*>(memory);
      break;
    }
    case RegionKind::kRegistered:
      allocate_pageable();
      result = calls_.register_host(host_, size, CU_MEMHOSTREGISTER_PORTABLE);
      break;
    case RegionKind::kPageable: result = allocate_pageable(); break;
    case RegionKind::kDevice: return calls_.allocate(&address_, size);
    case RegionKind::kPool:
      result = calls_.allocate_async(&address_, size, CU_STREAM_LEGACY);
      return result == CUDA_SUCCESS ? calls_.sync_stream(CU_STREAM_LEGACY) : result;
    case RegionKind::kMapped: return allocate_mapped();
    case RegionKind::kManaged:
      return calls_.allocate_managed(&address_, size, CU_MEM_ATTACH_GLOBAL);
  }
  address_ = reinterpret_cast<CUdeviceptr>(host_);
  return result;
}

CUresult Memory::allocate_in(CUstream stream) {
  return calls_.allocate_async(&address_, region_.size_bytes, stream);
}

CUresult Memory::free_in(CUstream stream) { return calls_.free_async(address_, stream); }

CUresult Memory::allocate_mapped() {
  CUmemAllocationProp wanted{};
  wanted.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  wanted.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = region_.gpu};
  size_t unit = 0;
  must(calls_.granularity(&unit, &wanted, CU_MEM_ALLOC_GRANULARITY_MINIMUM), "granularity");
  mapped_bytes_ = (region_.size_bytes + unit - 1) / unit * unit;
  CUresult result = calls_.create(&physical_, mapped_bytes_, &wanted, 0);
  if (result == CUDA_SUCCESS) result = calls_.reserve(&address_, mapped_bytes_, 0, 0, 0);
  if (result == CUDA_SUCCESS) result = calls_.map(address_, mapped_bytes_, 0, physical_, 0);
  const CUmemAccessDesc access{wanted.location, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
  if (result == CUDA_SUCCESS) result = calls_.set_access(address_, mapped_bytes_, &access, 1);
  return result;
}

CUresult Memory::free_mapped() {
  CUresult result = calls_.unmap(address_, mapped_bytes_);
  if (result == CUDA_SUCCESS) result = calls_.release(physical_);
  if (result == CUDA_SUCCESS) result = calls_.free_address(address_, mapped_bytes_);
  return result;
}

CUresult Memory::free() {
  switch (region_.kind) {
    case RegionKind::kPinned: return calls_.unpin(host_);
    case RegionKind::kRegistered: {
      const CUresult result = calls_.unregister_host(host_);
      pages_.reset();
      return result;
    }
    case RegionKind::kPageable: pages_.reset(); return CUDA_SUCCESS;
    case RegionKind::kMapped: return free_mapped();
    default: return calls_.free(address_);
  }
}

CUresult Memory::fill(uint64_t seed) {
  if (region_.is_host()) {
    fill_random(host_, region_.size_bytes, seed);
    return CUDA_SUCCESS;
  }
  std::vector<uint8_t> bytes(region_.size_bytes);
  fill_random(bytes.data(), bytes.size(), seed);
  // From pageable memory: the call returns before the bytes have reached the GPU's.
  const CUresult result = calls_.up[false](address_, bytes.data(), bytes.size());
  return result == CUDA_SUCCESS ? calls_.sync_stream(CU_STREAM_LEGACY) : result;
}

CUresult Memory::hash(uint64_t& hash) const {
  if (region_.is_host()) {
    hash = hash_bytes(host_, region_.size_bytes);
    return CUDA_SUCCESS;
  }
  std::vector<uint8_t> bytes(region_.size_bytes);
  const CUresult result = calls_.down[false](bytes.data(), address_, bytes.size());
  hash = hash_bytes(bytes.data(), bytes.size());
  return result;
}

}  // namespace braid::stress
