#include "fabric/local/export.h"

#include <string>
#include <utility>

#include "base/try.h"
#include "cuda/relaxed_capture.h"
#include "cuda/scoped_context.h"
#include "fabric/local/shared_memory.h"
#include "multipath/pointer_facts.h"

namespace braid::fabric::local {
namespace {

using multipath::DeviceFacts;

CUdeviceptr address_of(MutableBytes memory) { return reinterpret_cast<CUdeviceptr>(memory.data()); }

Status refusal(const std::string& why) {
  return Status::error("this GPU memory cannot be shared with other processes: " + why,
                       "Allocate it with cuMemAlloc (cudaMalloc), or with cuMemCreate and "
                       "CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR");
}

/// True if the driver does not know this attribute: it is then asked for the handle itself, later.
bool has_file_handles(const cuda::Driver& driver, CUdeviceptr address) {
  uint64_t kinds = 0;
  return driver.cuPointerGetAttribute(&kinds, CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES, address) !=
             CUDA_SUCCESS ||
         (kinds & CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) != 0;
}

Result<Exported> export_mapping(const cuda::Driver& driver, CUdeviceptr address,
                                const DeviceFacts& facts) {
  Exported exported;
  CUmemGenericAllocationHandle handle = 0;
  BRAID_TRY(driver.check(
      driver.cuMemRetainAllocationHandle(&handle, reinterpret_cast<void*>(facts.extent.begin)),
      "sharing mapped GPU memory"));
  int file = -1;
  const CUresult result = driver.cuMemExportToShareableHandle(
      &file, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0);
  driver.cuMemRelease(handle);
  BRAID_TRY(driver.check(result, "sharing mapped GPU memory"));
  exported.file = std::make_shared<const File>(file);
  exported.offer.kind = Offer::kMapping;
  exported.offer.offset_bytes = address - facts.extent.begin;
  exported.offer.shared_bytes = facts.extent.size_bytes;
  return exported;
}

Result<Exported> export_allocation(const cuda::Driver& driver, CUdeviceptr address,
                                   const DeviceFacts& facts) {
  Exported exported;
  const cuda::ScopedContext scope(driver, facts.context);
  BRAID_TRY(driver.check(driver.cuIpcGetMemHandle(&exported.offer.handle, facts.extent.begin),
                         "sharing GPU memory"));
  exported.offer.kind = Offer::kIpc;
  exported.offer.offset_bytes = address - facts.extent.begin;
  return exported;
}

Result<Exported> export_memory(const cuda::Driver& driver, MutableBytes memory) {
  BRAID_TRY(check_exportable(driver, memory));
  const cuda::RelaxedCapture relaxed(driver);
  const CUdeviceptr address = address_of(memory);
  const DeviceFacts facts = multipath::pointer_facts(driver, address).device;
  Result<Exported> exported = facts.kind == DeviceFacts::Kind::kMapped
                                  ? export_mapping(driver, address, facts)
                                  : export_allocation(driver, address, facts);
  if (!exported.ok()) return exported;
  Offer& offer = exported.value().offer;
  offer.size_bytes = memory.size();
  offer.address = address;
  CUdevice device = 0;
  BRAID_TRY(driver.check(driver.cuDeviceGet(&device, facts.gpu), "finding the GPU"));
  BRAID_TRY(
      driver.check(driver.cuDeviceGetUuid(&offer.gpu, device), "asking for the GPU's number"));
  return exported;
}

}  // namespace

Status check_exportable(const cuda::Driver& driver, MutableBytes memory) {
  const CUdeviceptr address = address_of(memory);
  const DeviceFacts facts = multipath::pointer_facts(driver, address).device;
  if (facts.kind == DeviceFacts::Kind::kPlain) return {};
  if (facts.kind != DeviceFacts::Kind::kMapped)
    return refusal("it is from a pool, or of another process");
  if (!facts.extent.holds(address, memory.size()))
    return refusal("it is more than one mapping; add a region for each");
  if (!has_file_handles(driver, address)) return refusal("it was mapped without file descriptors");
  return {};
}

std::optional<Exported> export_pages(MutableBytes memory) {
  std::optional<FileRange> range = find_shared(memory);
  if (!range) return std::nullopt;
  Exported exported;
  exported.offer.kind = Offer::kPages;
  exported.offer.size_bytes = memory.size();
  exported.offer.offset_bytes = range->offset_bytes;
  exported.offer.shared_bytes = range->offset_bytes + memory.size();
  exported.file = std::move(range->file);
  return exported;
}

bool Export::has_ended(gpu::Lane& lane) {
  if (!std::exchange(has_begun_, true))
    lane.run([self = shared_from_this()](CUresult context) { self->ask(context); });
  const std::lock_guard lock(mutex_);
  return has_ended_;
}

const Exported* Export::result() const {
  const std::lock_guard lock(mutex_);
  return exported_ ? &*exported_ : nullptr;
}

/// Runs in the lane's thread.
void Export::ask(CUresult context) {
  std::optional<Exported> exported;
  if (context == CUDA_SUCCESS)
    if (Result<Exported> made = export_memory(driver_, memory_); made.ok())
      exported = std::move(made).value();
  const std::lock_guard lock(mutex_);
  exported_ = std::move(exported);
  has_ended_ = true;
}

}  // namespace braid::fabric::local
