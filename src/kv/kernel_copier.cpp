#include "kv/kernel_copier.h"

#include <algorithm>
#include <string>

#include "base/options.h"
#include "base/try.h"
#include "cuda/registered_memory.h"
#include "cuda/relaxed_capture.h"
#include "cuda/scoped_context.h"
#include "multipath/batch_lists.h"
#include "multipath/kernel_mover.h"
#include "multipath/transfer_memory.h"

namespace braid::kv {

using multipath::Batch;
using multipath::Segment;
using multipath::TransferState;
using multipath::Verdict;

namespace {

// So many entries of the driver's batch (docs/measurements/2026-11-24-kv-plan.md) cost the caller
// about what a kernel's launch does (2026-11-23-2xH200-calls.md).
constexpr size_t kFewestCopies = 16;
// Batches of larger ones reach about the link's bandwidth by the driver (the same record).
constexpr uint64_t kLargestCopyBytes = 512 << 10;

uint64_t bytes_of(std::span<const library::Copy> copies) {
  uint64_t size_bytes = 0;
  for (const library::Copy& copy : copies) size_bytes += copy.size_bytes;
  return size_bytes;
}

// Large copies reach more bandwidth by copy engines, and a few cost the caller little.
bool is_for_kernel(size_t count, uint64_t size_bytes) {
  return count >= kFewestCopies && size_bytes / count <= kLargestCopyBytes;
}

}  // namespace
// The kernels in one context, and what their transfers need: as multipath::Target has them, without
// relays.
class KernelCopier::Link {
 public:
  static Result<std::unique_ptr<Link>> open(const cuda::Driver& driver, CUcontext context) {
    std::unique_ptr<Link> link(new Link(driver, context));
    const cuda::RelaxedCapture relaxed(driver);
    const cuda::ScopedContext scope(driver, context);
    BRAID_TRY(driver.check(scope.status(), "entering the rank's context"));
    BRAID_TRY(link->prepare());
    return link;
  }
  ~Link();
  Link(const Link&) = delete;
  Link& operator=(const Link&) = delete;

  CUcontext context() const { return context_; }

  /// kAccelerated, or why nothing was enqueued; kFailed, and `error`: some of it may be.
  Verdict copy(std::span<const library::Copy> copies, uint64_t size_bytes, CUstream stream,
               CUresult& error);

 private:
  Link(const cuda::Driver& driver, CUcontext context) : driver_(driver), context_(context) {}
  Status prepare();
  Status warm_up() const;
  bool is_on_gpu(uint64_t address) const;
  void list_segments(std::span<const library::Copy> copies, bool to_device);
  TransferState* acquire(CUstream stream);
  bool slice(const Batch& batch, TransferState& state);

  const cuda::Driver& driver_;
  const CUcontext context_;
  multipath::PullKernels kernels_;
  multipath::TransferMemory memory_;
  std::vector<Segment> segments_;
};

Status KernelCopier::Link::prepare() {
  CUdevice device = 0;
  BRAID_TRY(driver_.check(driver_.cuCtxGetDevice(&device), "asking a context for its GPU"));
  BRAID_LET(kernels, multipath::load_pull_kernels(driver_, Options{}, device, device));
  kernels_ = kernels;
  BRAID_TRY(warm_up());
  return memory_.open(driver_, device, {}, [&](uint64_t size_bytes, const std::string& what) {
    return cuda::RegisteredMemory::open(driver_, size_bytes, what);
  });
}

KernelCopier::Link::~Link() {
  const cuda::RelaxedCapture relaxed(driver_);
  const cuda::ScopedContext scope(driver_, context_);
  const bool is_quiet = !memory_.is_open() || memory_.transfers->all_free();
  if (scope.status() == CUDA_SUCCESS && is_quiet) {
    if (kernels_.module != nullptr) driver_.cuModuleUnload(kernels_.module);
    memory_.free();
    return;
  }
  // The context has failed, or is gone: a kernel that has not left may yet use the memory.
  memory_.abandon();
}

// At the first launch of a kernel the driver may wait for the context's streams.
Status KernelCopier::Link::warm_up() const {
  CUstream stream = nullptr;
  BRAID_TRY(driver_.check(driver_.cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING),
                          "making a stream for braid's kernels"));
  Status warmed = multipath::warm_up(driver_, kernels_, stream);
  if (warmed.ok())
    warmed = driver_.check(driver_.cuStreamSynchronize(stream), "running braid's kernels");
  driver_.cuStreamDestroy(stream);
  return warmed;
}

bool KernelCopier::Link::is_on_gpu(uint64_t address) const {
  unsigned type = 0;
  return driver_.cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, address) ==
             CUDA_SUCCESS &&
         type == CU_MEMORYTYPE_DEVICE;
}

void KernelCopier::Link::list_segments(std::span<const library::Copy> copies, bool to_device) {
  segments_.clear();
  for (const library::Copy& copy : copies)
    segments_.push_back({reinterpret_cast<void*>(to_device ? copy.source : copy.destination),
                         to_device ? copy.destination : copy.source, copy.size_bytes});
}

TransferState* KernelCopier::Link::acquire(CUstream stream) {
  TransferState* state = memory_.transfers->acquire(multipath::stream_key(context_, stream));
  if (state == nullptr) return nullptr;
  ++state->generation;
  state->mover = multipath::Mover::kKernel;
  return state;
}

// False if earlier batches still hold the room for its lists.
bool KernelCopier::Link::slice(const Batch& batch, TransferState& state) {
  const std::span<cuda::SliceList> room = multipath::take_lists(*memory_.lists, batch, 0, state);
  if (room.empty()) return false;
  multipath::write_lists(batch, room, state.bytes);
  return true;
}

Verdict KernelCopier::Link::copy(std::span<const library::Copy> copies, uint64_t size_bytes,
                                 CUstream stream, CUresult& error) {
  const bool to_device = is_on_gpu(copies.front().destination);
  list_segments(copies, to_device);
  const Batch batch(
      to_device ? multipath::Direction::kHostToDevice : multipath::Direction::kDeviceToHost,
      segments_, stream);
  TransferState* state = acquire(stream);
  if (state == nullptr) return Verdict::kSaturated;
  state->bytes = {.size_bytes = size_bytes};
  Verdict verdict = Verdict::kSaturated;
  if (slice(batch, *state)) {
    const multipath::KernelJob job{.direction = batch.direction,
                                   .stream = stream,
                                   .context = context_,
                                   .bytes = state->bytes,
                                   .yield_policy = {.yields = false},
                                   .direct = memory_.direct(kernels_),
                                   .relays = {}};
    const multipath::Enqueued moved = multipath::enqueue_kernels(driver_, job, *state);
    verdict = moved.verdict;
    error = moved.error;
  }
  if (verdict == Verdict::kSaturated || verdict == Verdict::kDriverError)
    state->mark_kernels_left();
  state->is_acquired = false;
  return verdict;
}

// ---- Every rank's ----

KernelCopier::KernelCopier(const cuda::Driver& driver) : driver_(driver), native_(driver) {}
KernelCopier::~KernelCopier() = default;

Result<std::unique_ptr<KernelCopier>> KernelCopier::open(const cuda::Driver& driver,
                                                         std::span<const CUcontext> contexts) {
  std::unique_ptr<KernelCopier> copier(new KernelCopier(driver));
  for (const CUcontext context : contexts) {
    if (copier->find(context) != nullptr) continue;
    BRAID_LET(link, Link::open(driver, context));
    copier->links_.push_back(std::move(link));
  }
  return copier;
}

KernelCopier::Link* KernelCopier::find(CUcontext context) const {
  const auto found = std::find_if(links_.begin(), links_.end(),
                                  [&](const auto& link) { return link->context() == context; });
  return found != links_.end() ? found->get() : nullptr;
}

Status KernelCopier::copy(std::span<const library::Copy> copies, CUstream stream, Urgency urgency) {
  const uint64_t size_bytes = bytes_of(copies);
  if (is_for_kernel(copies.size(), size_bytes)) {
    CUcontext context = nullptr;
    BRAID_TRY(driver_.check(driver_.cuCtxGetCurrent(&context), "asking for the current context"));
    Link* const link = find(context);
    CUresult error = CUDA_SUCCESS;
    const Verdict verdict =
        link != nullptr ? link->copy(copies, size_bytes, stream, error) : Verdict::kForeignContext;
    if (verdict == Verdict::kFailed)
      return driver_.check(error, "a batch of " + std::to_string(copies.size()) + " copies");
    if (verdict == Verdict::kAccelerated) {
      carried_.accelerated_bytes += size_bytes;
      return {};
    }
  }
  BRAID_TRY(native_.copy(copies, stream, urgency));
  carried_.native_bytes += size_bytes;
  return {};
}

}  // namespace braid::kv
