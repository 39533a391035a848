#include "tools/warm_up.h"
#include "multipath/native_copy.h"

#include <chrono>

#include "base/try.h"
#include "cuda/scoped_context.h"

namespace braid::tools {
namespace {

using multipath::Direction;
using multipath::Verdict;

constexpr size_t kSizeBytes = size_t{64} << 20;
constexpr std::chrono::milliseconds kDuration{20};

}  // namespace

Result<std::unique_ptr<WarmUp>> WarmUp::open(const cuda::Driver& driver,
                                             multipath::Engine& engine) {
  std::unique_ptr<WarmUp> warm_up(new WarmUp(driver, engine));
  GpuObjects& objects = warm_up->objects_;
  warm_up->copy_ = {Direction::kHostToDevice, objects.pinned(kSizeBytes),
                    objects.memory(kSizeBytes), kSizeBytes, objects.stream()};
  BRAID_TRY(driver.check(driver.cuCtxGetCurrent(&warm_up->context_), "asking for the context"));
  BRAID_TRY(objects.status());
  return warm_up;
}

Status WarmUp::run(Direction direction) {
  const cuda::ScopedContext scope(driver_, context_);
  const auto end = std::chrono::steady_clock::now() + kDuration;
  copy_.direction = direction;
  while (std::chrono::steady_clock::now() < end) {
    if (engine_.submit(copy_) != Verdict::kAccelerated)
      BRAID_TRY(driver_.check(copy_natively(driver_, copy_), "a warming copy"));
    BRAID_TRY(driver_.check(driver_.cuStreamSynchronize(copy_.stream), "a warming copy"));
  }
  return {};
}

}  // namespace braid::tools
