#include "tools/gpu_objects.h"

#include <utility>

#include "base/units.h"
#include "cuda/scoped_context.h"

namespace braid::tools {

template <typename Object, typename Make, typename End>
Object GpuObjects::make(const std::string& what, Make make, End end) {
  Object object{};
  Made made{};
  if (status_.ok()) status_ = driver_.check(driver_.cuCtxGetCurrent(&made.context), what);
  if (status_.ok()) status_ = driver_.check(make(&object), what);
  if (!status_.ok()) return {};
  made.end = [object, end] { end(object); };
  made_.push_back(std::move(made));
  return object;
}

CUstream GpuObjects::stream() {
  return make<CUstream>(
      "making a stream",
      [this](CUstream* stream) { return driver_.cuStreamCreate(stream, CU_STREAM_NON_BLOCKING); },
      driver_.cuStreamDestroy);
}

CUevent GpuObjects::event(unsigned flags) {
  return make<CUevent>(
      "making an event", [&](CUevent* event) { return driver_.cuEventCreate(event, flags); },
      driver_.cuEventDestroy);
}

CUdeviceptr GpuObjects::memory(uint64_t size_bytes) {
  return make<CUdeviceptr>(
      "allocating " + format_size(size_bytes) + " on the GPU",
      [&](CUdeviceptr* memory) { return driver_.cuMemAlloc(memory, size_bytes); },
      driver_.cuMemFree);
}

char* GpuObjects::pinned(uint64_t size_bytes) {
  return static_cast<char*>(make<void*>(
      "pinning " + format_size(size_bytes) + " of host memory",
      [&](void** memory) {
        return driver_.cuMemHostAlloc(memory, size_bytes, CU_MEMHOSTALLOC_PORTABLE);
      },
      driver_.cuMemFreeHost));
}

GpuObjects::~GpuObjects() {
  cuda::ScopedContext scope(driver_);
  for (auto made = made_.rbegin(); made != made_.rend(); ++made) {
    scope.enter(made->context);
    made->end();
  }
}

}  // namespace braid::tools
