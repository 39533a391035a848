// libbraid_preload.so's backend: the interposer's engine, options, statistics and log.
#include <chrono>
#include <thread>
#include <vector>

#include "library/backend.h"
#include "preload/binding.h"
#include "preload/contexts.h"
#include "preload/helper.h"
#include "preload/observe.h"
#include "preload/state.h"

namespace braid::library {
namespace {

using multipath::Engine;
using preload::ReentryGuard;

// Relays of one GPU take a tenth of a second, and of many processes that start at once seconds.
constexpr std::chrono::seconds kLongestOpening{60};
constexpr std::chrono::milliseconds kStep{1};

class SharedEngine final : public Backend {
 public:
  const cuda::Driver& driver() const override { return *preload::driver(); }
  Engine* engine() override { return preload::engine(); }
  Status add_context(CUcontext context) override {
    const ReentryGuard guard;
    return preload::make_known(context);
  }
  void open_relays() noexcept override {
    const ReentryGuard guard;
    preload::open_relays(preload::Opening::kInBackground);
  }
  void count(const preload::CopyRecord& record) noexcept override {
    preload::Observation::record(record.entry_point, record.size_bytes, record.batch,
                                 record.outcome, record.cost_ns);
  }
  std::string statistics(int wait_ms) override {
    Engine* open = engine();
    return render_json(preload::statistics_source(), wait_ms,
                       open != nullptr ? open->problems() : std::vector<std::string>());
  }
};

// Another thread may have begun, of the program's or of braid's.
void wait_for_relays() {
  const auto deadline = std::chrono::steady_clock::now() + kLongestOpening;
  if (Engine* open = preload::engine()) open->request_relays(multipath::kEveryGpu);
  preload::open_relays(preload::Opening::kNow);
  while (std::chrono::steady_clock::now() < deadline) {
    const Engine* open = preload::engine();
    if (open == nullptr || open->are_relays_open()) return;
    std::this_thread::sleep_for(kStep);
  }
}

}  // namespace

// The engine has the options of `braid run`; of the library's own, only the waiting is left to say.
Error open_backend(const Options& options, std::unique_ptr<Backend>& backend) {
  auto driver = cuda::open_driver();  // loads it, if the program has not
  if (!driver.ok()) return Error::from(driver.status(), BRAID_ERROR_UNAVAILABLE);
  const Status started = driver.value().check(driver.value().cuInit(0), "starting CUDA");
  if (!started.ok()) return Error::from(started, BRAID_ERROR_UNAVAILABLE);
  if (!preload::bind() || preload::driver() == nullptr)
    return {BRAID_ERROR_UNAVAILABLE, "braid run does not accelerate this process"};
  const ReentryGuard guard;
  preload::create_engine();
  if (options.waits_for_relays) wait_for_relays();
  backend = std::make_unique<SharedEngine>();
  return Error::none();
}

}  // namespace braid::library
