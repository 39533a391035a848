#include "fabric/local/mapping.h"

#include <cstring>
#include <utility>

#include "multipath/pointer_facts.h"

namespace braid::fabric::local {

int find_gpu(const cuda::Driver& driver, const CUuuid& gpu) {
  int count = 0;
  driver.cuDeviceGetCount(&count);
  for (int ordinal = 0; ordinal < count; ++ordinal) {
    CUdevice device = 0;
    CUuuid uuid{};
    if (driver.cuDeviceGet(&device, ordinal) == CUDA_SUCCESS &&
        driver.cuDeviceGetUuid(&uuid, device) == CUDA_SUCCESS &&
        std::memcmp(&uuid, &gpu, sizeof uuid) == 0)
      return ordinal;
  }
  return -1;
}

// ---- The writer's side ----

Mapping::State Mapping::prepare(gpu::Lane& lane) {
  const std::lock_guard lock(mutex_);
  const auto [view, is_new] = views_.try_emplace(&lane);
  if (!is_new) return view->second.state;
  view->second.lane = &lane;
  if (offer_.kind == Offer::kSameProcess) {
    view->second.state = State::kReady;
    view->second.address = offer_.address;
  } else {
    lane.run(
        [self = shared_from_this(), at = &lane](CUresult context) { self->open(context, *at); });
  }
  return view->second.state;
}

CUdeviceptr Mapping::address_for(const gpu::Lane& lane) const {
  const std::lock_guard lock(mutex_);
  return views_.at(&lane).address;
}

/// Runs in the lane's thread.
void Mapping::open(CUresult context, gpu::Lane& lane) {
  const std::lock_guard opening(opening_);
  View view;
  view.lane = &lane;
  const CUresult result = context == CUDA_SUCCESS ? open(view, lane.gpu()) : context;
  view.state = result == CUDA_SUCCESS ? State::kReady : State::kRefused;
  const std::lock_guard lock(mutex_);
  view.is_closing = views_[&lane].is_closing;
  if (view.is_closing) view.state = State::kComing;
  views_[&lane] = view;
}

CUresult Mapping::open(View& view, int gpu) {
  if (offer_.kind == Offer::kIpc) {
    const CUresult result =
        driver_.cuIpcOpenMemHandle(&view.opened, offer_.handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS);
    view.address = view.opened + offer_.offset_bytes;
    if (result != CUDA_SUCCESS || lies_within(view.opened, view.address)) return result;
    driver_.cuIpcCloseMemHandle(std::exchange(view.opened, 0));
    return CUDA_ERROR_INVALID_VALUE;
  }
  CUresult result = is_mapped_ ? CUDA_SUCCESS : map();
  if (result == CUDA_SUCCESS) result = allow(gpu);
  view.address = reserved_ + offer_.offset_bytes;
  return result;
}

/// Whether the offered region, which begins at the address, lies within the allocation: the offer
/// does not say how large that is. True if the driver does not know.
bool Mapping::lies_within(CUdeviceptr allocation, CUdeviceptr address) const {
  const multipath::Extent extent = multipath::pointer_facts(driver_, allocation).device.extent;
  return extent.size_bytes == 0 || extent.holds(address, offer_.size_bytes);
}

CUresult Mapping::map() {
  CUresult result = driver_.cuMemImportFromShareableHandle(
      &handle_, reinterpret_cast<void*>(static_cast<intptr_t>(file_.get())),
      CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
  if (result == CUDA_SUCCESS)
    result = driver_.cuMemAddressReserve(&reserved_, offer_.shared_bytes, 0, 0, 0);
  if (result == CUDA_SUCCESS)
    result = driver_.cuMemMap(reserved_, offer_.shared_bytes, 0, handle_, 0);
  is_mapped_ = result == CUDA_SUCCESS;
  if (!is_mapped_) unmap();
  return result;
}

CUresult Mapping::allow(int gpu) {
  CUmemAccessDesc access{};
  access.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  access.location.id = gpu;
  access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
  return driver_.cuMemSetAccess(reserved_, offer_.shared_bytes, &access, 1);
}

bool Mapping::let_go() {
  const std::lock_guard lock(mutex_);
  if (std::exchange(is_letting_go_, true)) return is_gone_;
  is_gone_ = views_.empty() || offer_.kind == Offer::kSameProcess;
  for (auto& [lane, view] : views_)
    if (!is_gone_) close_by(view);
  return is_gone_;
}

void Mapping::leave(gpu::Lane& lane) {
  const std::lock_guard lock(mutex_);
  const auto view = views_.find(&lane);
  if (view == views_.end()) return;
  if (offer_.kind == Offer::kSameProcess)
    views_.erase(view);
  else
    close_by(view->second);
}

/// Called under the mutex.
void Mapping::close_by(View& view) {
  if (std::exchange(view.is_closing, true)) return;
  view.state = State::kComing;  // the caller of `prepare` asks again
  view.lane->run([self = shared_from_this(), lane = view.lane](CUresult) { self->close(lane); });
}

/// Runs in the lane's thread. The last one unmaps the shared mapping.
void Mapping::close(const gpu::Lane* lane) {
  const std::lock_guard opening(opening_);
  CUdeviceptr opened = 0;
  bool is_last = false;
  {
    const std::lock_guard lock(mutex_);
    opened = views_.at(lane).opened;
    is_last = views_.size() == 1;
  }
  if (opened != 0) driver_.cuIpcCloseMemHandle(opened);
  if (is_last) unmap();
  const std::lock_guard lock(mutex_);
  views_.erase(lane);
  is_gone_ = is_letting_go_ && views_.empty();
}

void Mapping::unmap() {
  if (is_mapped_) driver_.cuMemUnmap(reserved_, offer_.shared_bytes);
  if (reserved_ != 0) driver_.cuMemAddressFree(reserved_, offer_.shared_bytes);
  if (handle_ != 0) driver_.cuMemRelease(handle_);
  is_mapped_ = false;
  reserved_ = handle_ = 0;
}

}  // namespace braid::fabric::local
