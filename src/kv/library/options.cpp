#include "kv/library/options.h"

#include <dlfcn.h>

#include <span>
#include <string>

#include "base/try.h"
#include "cuda/scoped_context.h"
#include "kv/braid_copier.h"
#include "kv/kernel_copier.h"
#include "loader/libc_dlsym.h"

namespace braid::kv::abi {
namespace {

Result<Layout> layout_of(const braid_kv_options& options) {
  if (options.segments == nullptr) return Status::error("braid_kv_options: segments is null");
  std::vector<Segment> segments;
  for (const braid_kv_segment& segment : std::span(options.segments, options.segment_count))
    segments.push_back({.gpu_base_bytes = segment.gpu_base_bytes,
                        .gpu_stride_bytes = segment.gpu_stride_bytes,
                        .size_bytes = segment.size_bytes});
  return Layout::of(std::move(segments));
}

/// The driver's own batches. Under `braid run` the name leads to the interposer, whose kernels
/// would move them: a mover of the driver's runs none.
void pass_interposer(cuda::Driver& driver) {
  void* const library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
  if (library == nullptr) return;
  void* const batches = loader::libc_dlsym(library, "cuMemcpyBatchAsync");
  if (batches != nullptr)
    driver.copy_batch = reinterpret_cast<decltype(driver.copy_batch)>(batches);
  dlclose(library);
}

Result<std::unique_ptr<Copier>> copier_over_own_link(const braid_kv_options& options,
                                                     const braid::cuda::Driver& driver) {
  if (options.mover == BRAID_KV_BY_DRIVER || options.mover == BRAID_KV_BY_COPY_ENGINES)
    return std::unique_ptr<Copier>(std::make_unique<NativeCopier>(driver));
  std::vector<CUcontext> contexts;
  for (const braid_kv_rank& rank : std::span(options.ranks, options.rank_count))
    contexts.push_back(rank.context);
  BRAID_LET(kernel, KernelCopier::open(driver, contexts));
  return std::unique_ptr<Copier>(std::move(kernel));
}

Result<std::unique_ptr<Copier>> copier_of(const braid_kv_options& options,
                                          const braid::cuda::Driver& driver) {
  if (options.mover < BRAID_KV_BY_DRIVER || options.mover > BRAID_KV_BY_COPY_ENGINES)
    return Status::error("braid_kv_options: mover is " + std::to_string(options.mover) +
                         ", which is not a braid_kv_mover");
  if (options.engine == nullptr) return copier_over_own_link(options, driver);
  if (options.copy_batch == nullptr || options.last_error == nullptr ||
      options.last_cuda_error == nullptr || options.prepare == nullptr)
    return Status::error("braid_kv_options: an engine without its functions",
                         "Set copy_batch to braid_copy_batch, and last_error, last_cuda_error and "
                         "prepare likewise");
  return std::unique_ptr<Copier>(std::make_unique<BraidCopier>(
      BraidCalls{options.engine, options.copy_batch, options.last_error, options.last_cuda_error}));
}

// Else the first plan would load kernels, and wait for the streams of a context.
Status prepare(const braid_kv_options& options, const cuda::Driver& driver) {
  for (const braid_kv_rank& rank : std::span(options.ranks, options.rank_count)) {
    const cuda::ScopedContext scope(driver, rank.context);
    BRAID_TRY(driver.check(scope.status(), "entering the rank's context"));
    if (options.prepare(options.engine) != BRAID_OK)
      return Status::of(BRAID_ERROR_CUDA, options.last_error(), options.last_cuda_error());
  }
  return {};
}

Status start(const braid_kv_options& options, cuda::Driver& driver, Given& given) {
  BRAID_LET(opened, cuda::open_driver());
  driver = opened;
  BRAID_TRY(driver.check(driver.cuInit(0), "starting CUDA"));
  pass_interposer(driver);
  BRAID_LET(copier, copier_of(options, driver));
  given.copier = std::move(copier);
  if (options.engine != nullptr) BRAID_TRY(prepare(options, driver));
  for (const braid_kv_rank& rank : std::span(options.ranks, options.rank_count))
    given.ranks.push_back({rank.context, rank.cache, rank.compute});
  return {};
}

}  // namespace

Result<Given> read(const braid_kv_options& options, cuda::Driver& driver) {
  if (options.ranks == nullptr && options.rank_count > 0)
    return Status::error("braid_kv_options: ranks is null and has a count");
  BRAID_LET(layout, layout_of(options));
  Given given{layout, {options.gpu_slots, options.host_slots}, {}, {}};
  if (options.rank_count > 0) BRAID_TRY(start(options, driver, given));
  return given;
}

}  // namespace braid::kv::abi
