#include "transfer/library/multipath_copies.h"

#include <dlfcn.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <span>
#include <utility>

#include "fabric/gpu/process_driver.h"

namespace braid::transfer {
namespace {

constexpr const char* kLibrary = "libbraid.so.0";

/// libbraid: the one that the program has loaded, or the interposer (RTLD_DEFAULT, which is null);
/// else the one beside this library, or the one that the loader finds.
void* find_library() {
  if (dlsym(RTLD_DEFAULT, "braid_open") != nullptr) return RTLD_DEFAULT;
  Dl_info here{};
  void* found = nullptr;
  if (dladdr(reinterpret_cast<void*>(&find_library), &here) != 0 && here.dli_fname != nullptr) {
    const auto beside = std::filesystem::path(here.dli_fname).parent_path() / kLibrary;
    found = dlopen(beside.c_str(), RTLD_NOW | RTLD_LOCAL);
  }
  return found != nullptr ? found : dlopen(kLibrary, RTLD_NOW | RTLD_LOCAL);
}

template <typename Function>
bool find_function(void* library, const char* name, Function& function) {
  function = reinterpret_cast<Function>(dlsym(library, name));
  return function != nullptr;
}

}  // namespace

MultipathCopies::Functions MultipathCopies::find() {
  Functions found;
  void* library = find_library();
  const bool has_all = find_function(library, "braid_open", found.open) &&
                       find_function(library, "braid_close", found.close) &&
                       find_function(library, "braid_prepare", found.prepare) &&
                       find_function(library, "braid_forget_context", found.forget) &&
                       find_function(library, "braid_copy", found.copy) &&
                       find_function(library, "braid_last_cuda_error", found.last_cuda_error);
  (void)find_function(library, "braid_paths", found.paths);
  return has_all ? found : Functions{};
}

MultipathCopies::~MultipathCopies() {
  if (engine_ != nullptr) call_.close(engine_);
}

void MultipathCopies::prepare() {
  const std::lock_guard lock(opening_);
  if (!std::exchange(is_opened_, true)) open();
  if (engine_ != nullptr) (void)call_.prepare(engine_);  // else the driver makes the copies
}

void MultipathCopies::forget() {
  CUcontext context = nullptr;
  if (engine_ == nullptr) return;
  if (fabric::gpu::process_driver()->cuCtxGetCurrent(&context) == CUDA_SUCCESS)
    (void)call_.forget(engine_, context);
}

void MultipathCopies::open() {
  int gpus = 0;
  const bool has_relays =
      fabric::gpu::process_driver()->cuDeviceGetCount(&gpus) == CUDA_SUCCESS && gpus > 1;
  if (has_relays) call_ = find();
  if (call_.open == nullptr) return;
  const braid_option in_background{"BRAID_OPENING", "background"};
  const braid_options options{sizeof(braid_options), &in_background, 1};
  braid_engine* opened = nullptr;
  if (call_.open(&options, &opened) == BRAID_OK) engine_ = opened;
}

CUresult MultipathCopies::copy(CUdeviceptr to, CUdeviceptr from, uint64_t size_bytes,
                               CUstream stream) {
  braid_engine* engine = engine_;
  if (engine == nullptr)
    return fabric::gpu::process_driver()->cuMemcpyAsync(to, from, size_bytes, stream);
  const braid_status status =
      call_.copy(engine, reinterpret_cast<void*>(to), reinterpret_cast<const void*>(from),
                 size_bytes, stream, BRAID_PRIORITY_BULK, nullptr);
  if (status == BRAID_OK) return CUDA_SUCCESS;
  const int refused = call_.last_cuda_error();
  return refused == 0 ? CUDA_ERROR_UNKNOWN : static_cast<CUresult>(refused);
}

std::vector<CopyPath> MultipathCopies::paths(int gpu, bool is_to_gpu, uint64_t size_bytes) const {
  braid_engine* engine = engine_;
  if (engine == nullptr || call_.paths == nullptr) return {};
  std::array<braid_path, 64> paths{};
  size_t count = 0;
  if (call_.paths(engine, gpu, is_to_gpu ? 1 : 0, size_bytes, paths.data(), paths.size(), &count) !=
      BRAID_OK)
    return {};
  std::vector<CopyPath> found;
  for (const braid_path& path : std::span(paths).first(std::min(count, paths.size())))
    found.push_back({path.gpu, path.size_bytes, path.pcie_gbps, path.nvlink_gbps});
  return found;
}

}  // namespace braid::transfer
