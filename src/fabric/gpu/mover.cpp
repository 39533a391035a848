#include "fabric/gpu/mover.h"

#include <unistd.h>

#include <algorithm>
#include <utility>

#include "cuda/kernels/image.h"
#include "cuda/kernels/pages.h"

namespace braid::fabric::gpu {
namespace {

// A launch costs as much as two copies. Copy engines move larger pieces as fast, and use no SMs.
constexpr size_t kFewestPages = 4;
constexpr uint64_t kLargestPageBytes = 1 << 20;
// The blocks share the parts among them. The parts are small, so that all blocks end together.
constexpr uint64_t kPartBytes = 32 << 10;
constexpr size_t kMostParts = 8192;
constexpr size_t kListBytes = kMostParts * sizeof(cuda::Page);
constexpr uint32_t kBlocks = 128;

}  // namespace

void Ended::add(std::span<const Copy> copies) {
  const std::lock_guard lock(mutex_);
  copies_.insert(copies_.end(), copies.begin(), copies.end());
  has_some_.store(true, std::memory_order_release);
  // Under the mutex: once the owner has taken the last copy, it may close the descriptor.
  constexpr uint64_t kOne = 1;
  if (descriptor_ >= 0) (void)!write(descriptor_, &kOne, sizeof kOne);
}

bool Ended::take(std::vector<Copy>& into) {
  if (!has_some_.load(std::memory_order_acquire)) return false;
  const std::lock_guard lock(mutex_);
  into.insert(into.end(), copies_.begin(), copies_.end());
  copies_.clear();
  has_some_.store(false, std::memory_order_relaxed);
  return true;
}

void Mover::prepare_pages(CUstream stream) {
  if (pages_ != nullptr || module_ != nullptr) return;
  if (driver_.cuModuleLoadData(&module_, cuda::pages_kernel_image()) != CUDA_SUCCESS) return;
  auto lists = cuda::RegisteredMemory::open(driver_, kListCount * kListBytes, "lists of pages");
  if (!lists.ok()) return;
  lists_ = std::move(lists).value();
  CUfunction found = nullptr;
  if (driver_.cuModuleGetFunction(&found, module_, cuda::kPagesKernelName) != CUDA_SUCCESS) return;
  pages_ = found;
  if (launch({}, stream, 0) != CUDA_SUCCESS)
    pages_ = nullptr;  // the first launch may take its time
}

void Mover::close() {
  if (module_ != nullptr) driver_.cuModuleUnload(module_);
  lists_.reset();
}

/// Merges copies that are adjacent in the same regions: a call costs as much as moving a megabyte
/// between GPUs.
bool goes_on(const Copy& before, const Copy& copy) {
  return copy.regions == before.regions && copy.ended == before.ended &&
         copy.carrier == before.carrier && copy.may_be_kernels == before.may_be_kernels &&
         copy.to == before.to + before.size_bytes && copy.from == before.from + before.size_bytes;
}

std::span<const Copy> Mover::merge(std::span<const Copy> copies) {
  merged_.clear();
  const Copy* before = nullptr;
  for (const Copy& copy : copies) {
    if (before != nullptr && goes_on(*before, copy))
      merged_.back().size_bytes += copy.size_bytes;
    else
      merged_.push_back(
          {copy.to, copy.from, copy.size_bytes, 0, nullptr, copy.may_be_kernels, 0, copy.carrier});
    before = &copy;
  }
  return merged_;
}

CUresult Mover::enqueue(std::span<const Copy> copies, CUstream stream, size_t list) {
  const std::span<const Copy> merged = merge(copies);
  uint64_t parts = 0;
  bool are_pages = pages_ != nullptr && merged.size() >= kFewestPages;
  for (const Copy& copy : merged) {
    parts += (copy.size_bytes + kPartBytes - 1) / kPartBytes;
    are_pages = are_pages && copy.may_be_kernels && copy.size_bytes <= kLargestPageBytes;
  }
  if (are_pages && parts <= kMostParts) return launch(merged, stream, list);
  for (const Copy& copy : merged) {
    const CUresult result =
        copy.carrier != nullptr
            ? copy.carrier->copy(copy.to, copy.from, copy.size_bytes, stream)
            : driver_.cuMemcpyAsync(copy.to, copy.from, copy.size_bytes, stream);
    if (result != CUDA_SUCCESS) return result;
  }
  return CUDA_SUCCESS;
}

CUresult Mover::launch(std::span<const Copy> copies, CUstream stream, size_t number) {
  auto* list =
      reinterpret_cast<cuda::Page*>(static_cast<std::byte*>(lists_->data()) + number * kListBytes);
  uint32_t count = 0;
  for (const Copy& copy : copies)
    for (uint64_t at = 0; at < copy.size_bytes; at += kPartBytes)
      list[count++] = {copy.from + at, copy.to + at, std::min(kPartBytes, copy.size_bytes - at)};
  cuda::PagesArgs args{reinterpret_cast<uint64_t>(list), count,
                       std::clamp<uint32_t>(count, 1, kBlocks)};
  void* parameters[] = {&args};
  return driver_.cuLaunchKernel(pages_, args.block_count, 1, 1, cuda::kPagesThreads, 1, 1, 0,
                                stream, parameters, nullptr);
}

}  // namespace braid::fabric::gpu
