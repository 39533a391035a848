// Watchers: words that GPUs write.
#include <string>
#include <utility>

#include "cuda/driver.h"
#include "cuda/registered_memory.h"
#include "cuda/relaxed_capture.h"
#include "cuda/scoped_context.h"
#include "fabric/gpu/process_driver.h"
#include "fabric/library/watchers.h"

namespace braid::fabric {
namespace {

using cuda::Driver;
using cuda::RegisteredMemory;

class GpuWord final : public Word {
 public:
  GpuWord(const Driver& driver, CUcontext context, std::unique_ptr<RegisteredMemory> memory)
      : driver_(driver), context_(context), memory_(std::move(memory)) {}
  ~GpuWord() override {
    const cuda::ScopedContext entered(driver_, context_);
    const cuda::RelaxedCapture relaxed(driver_);
    if (entered.status() != CUDA_SUCCESS) memory_->abandon();  // the context is gone
    memory_.reset();
  }
  uint64_t* address() override { return static_cast<uint64_t*>(memory_->data()); }

 private:
  const Driver& driver_;
  CUcontext context_;
  std::unique_ptr<RegisteredMemory> memory_;
};

}  // namespace

Result<std::unique_ptr<Word>> make_gpu_word() {
  constexpr uint64_t kPageBytes = 4096;
  const Driver* driver = gpu::process_driver();
  if (driver == nullptr)
    return Status::error(
        "a word for GPUs needs the CUDA driver, and this process has not loaded it",
        "Ask for a word of host memory, or make a context first (cudaFree(0))");
  const Driver& loaded = *driver;
  CUcontext context = nullptr;
  if (loaded.cuCtxGetCurrent(&context) != CUDA_SUCCESS || context == nullptr)
    return Status::error("no CUDA context is current in this thread, and braid makes none",
                         "Make one current (cudaSetDevice and cudaFree(0), or cuCtxSetCurrent)");
  const cuda::RelaxedCapture relaxed(loaded);
  Result<std::unique_ptr<RegisteredMemory>> memory =
      RegisteredMemory::open(loaded, kPageBytes, "a word that a GPU writes");
  if (!memory.ok()) return memory.status();
  return std::unique_ptr<Word>(
      std::make_unique<GpuWord>(loaded, context, std::move(memory).value()));
}

}  // namespace braid::fabric
