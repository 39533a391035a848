#include "preload/access_ledger.h"

#include <algorithm>
#include <iterator>

namespace braid::preload {

using multipath::gpu_bit;

void AccessLedger::Access::set(AccessDescs descs) {
  for (const CUmemAccessDesc& desc : descs) {
    if (desc.location.type != CU_MEM_LOCATION_TYPE_DEVICE) continue;
    const GpuSet gpu = gpu_bit(desc.location.id);
    reads &= ~gpu;
    writes &= ~gpu;
    if (desc.flags == CU_MEM_ACCESS_FLAGS_PROT_READ) reads |= gpu;
    if (desc.flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE) writes |= gpu;
  }
}

void AccessLedger::Access::add(const Access& other) {
  reads |= other.reads & ~writes;
  writes |= other.writes & ~reads;
  granted |= other.granted;
}

std::optional<CUmemAccess_flags> AccessLedger::Access::answer(int gpu) const {
  const GpuSet bit = gpu_bit(gpu);
  if ((granted & bit) == 0) return std::nullopt;
  if ((writes & bit) != 0) return CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
  return (reads & bit) != 0 ? CU_MEM_ACCESS_FLAGS_PROT_READ : CU_MEM_ACCESS_FLAGS_PROT_NONE;
}

// Afterwards no range reaches across `at`.
void AccessLedger::split(CUdeviceptr at) {
  const auto after = ranges_.upper_bound(at);
  if (after == ranges_.begin()) return;
  const auto before = std::prev(after);
  if (before->first == at || before->second.end <= at) return;
  ranges_.emplace_hint(after, at, before->second);
  before->second.end = at;
}

// Changes what is known of the range; what was not known of it becomes known.
template <typename Change>
void AccessLedger::change(const MappedRange& changed, const Change& change) {
  CUdeviceptr address = changed.address;
  const CUdeviceptr end = address + changed.size_bytes;
  split(address);
  split(end);
  while (address < end) {
    auto range = ranges_.lower_bound(address);
    if (range == ranges_.end() || range->first != address) {
      const CUdeviceptr next = range == ranges_.end() ? end : std::min(end, range->first);
      range = ranges_.emplace_hint(range, address, Range{next, {}});
    }
    change(range->second.access);
    address = range->second.end;
  }
}

void AccessLedger::set(const MappedRange& range, AccessDescs descs) {
  change(range, [&](Access& access) { access.set(descs); });
}

void AccessLedger::set(CUmemoryPool pool, AccessDescs descs) { pools_[pool].access.set(descs); }

void AccessLedger::grant(const MappedRange& range, GpuSet gpus) {
  change(range, [&](Access& access) { access.granted |= gpus; });
}

void AccessLedger::grant(CUmemoryPool pool, GpuSet gpus) {
  if (const auto known = pools_.find(pool); known != pools_.end())
    known->second.access.granted |= gpus;
}

void AccessLedger::add(CUmemoryPool pool, int gpu) { pools_[pool] = {gpu, {}}; }

void AccessLedger::add_default(CUmemoryPool pool, int gpu) { pools_[pool].gpu = gpu; }

AccessLedger::Ranges AccessLedger::forget(const MappedRange& freed) {
  Ranges forgotten;
  const CUdeviceptr end = freed.address + freed.size_bytes;
  if (end < freed.address) return forgotten;
  split(freed.address);
  split(end);
  for (auto range = ranges_.lower_bound(freed.address);
       range != ranges_.end() && range->first < end;)
    forgotten.insert(ranges_.extract(range++));
  return forgotten;
}

AccessLedger::Pools AccessLedger::forget(CUmemoryPool pool) {
  Pools forgotten;
  if (const auto known = pools_.find(pool); known != pools_.end())
    forgotten.insert(pools_.extract(known));
  return forgotten;
}

void AccessLedger::restore(const Ranges& forgotten) {
  for (const auto& [address, range] : forgotten)
    change({address, range.end - address}, [&](Access& access) { access.add(range.access); });
}

void AccessLedger::restore(const Pools& forgotten) {
  for (const auto& [pool, known] : forgotten) {
    pools_[pool].gpu = known.gpu;
    pools_[pool].access.add(known.access);
  }
}

bool AccessLedger::knows(const MappedRange& asked) const {
  CUdeviceptr address = asked.address;
  auto range = ranges_.upper_bound(address);
  if (range != ranges_.begin()) --range;
  for (; range != ranges_.end() && range->first <= address && address < range->second.end; ++range)
    address = range->second.end;
  return address - asked.address >= asked.size_bytes;
}

bool AccessLedger::knows(CUmemoryPool pool, int gpu) const {
  const auto known = pools_.find(pool);
  return known != pools_.end() && known->second.gpu == gpu;
}

std::optional<CUmemAccess_flags> AccessLedger::answer(CUdeviceptr address, int gpu) const {
  const auto after = ranges_.upper_bound(address);
  if (after == ranges_.begin() || std::prev(after)->second.end <= address) return std::nullopt;
  return std::prev(after)->second.access.answer(gpu);
}

std::optional<CUmemAccess_flags> AccessLedger::answer(CUmemoryPool pool, int gpu) const {
  const auto known = pools_.find(pool);
  return known != pools_.end() ? known->second.access.answer(gpu) : std::nullopt;
}

GpuSet AccessLedger::granted(const MappedRange& asked) const {
  GpuSet gpus = 0;
  auto range = ranges_.upper_bound(asked.address);
  if (range != ranges_.begin()) --range;
  for (; range != ranges_.end() && range->first < asked.address + asked.size_bytes; ++range)
    if (range->second.end > asked.address) gpus |= range->second.access.granted;
  return gpus;
}

GpuSet AccessLedger::granted(CUmemoryPool pool) const {
  const auto known = pools_.find(pool);
  return known != pools_.end() ? known->second.access.granted : 0;
}

std::vector<MappedRange> AccessLedger::ranges() const {
  std::vector<MappedRange> all;
  for (const auto& [begin, range] : ranges_) all.push_back({begin, range.end - begin});
  return all;
}

std::vector<std::pair<CUmemoryPool, int>> AccessLedger::pools() const {
  std::vector<std::pair<CUmemoryPool, int>> all;
  for (const auto& [pool, known] : pools_)
    if (known.gpu >= 0) all.emplace_back(pool, known.gpu);
  return all;
}

}  // namespace braid::preload
