// libbraid.so's backend. Engines come and go with braid_open and braid_close; the statistics and
// the log are the process's.
#include <unistd.h>

#include <array>
#include <atomic>
#include <memory>
#include <mutex>
#include <vector>

#include "library/backend.h"
#include "multipath/thread.h"
#include "preload/reporter.h"

namespace braid::library {
namespace {

using multipath::Engine;

// Never destroyed: the report at exit comes late.
struct Process {
  preload::Statistics statistics;
  std::mutex lock;
  std::vector<Engine*> engines;  // that are open
  multipath::PathCounts closed;  // what those that are not have carried
  bool is_reporting = false;
  std::atomic<const std::string*> log{nullptr};  // null: none
};

Process& process() {
  static Process& instance = *new Process;  // owner: the process, until its end
  return instance;
}

// Under the lock. How many relays.
size_t collect(int wait_ms, multipath::PathCounts& paths,
               std::span<multipath::RelayCount> relays) noexcept {
  for (const multipath::PathCount& path : process().closed.all()) paths.add(path);
  size_t count = 0;
  for (Engine* engine : process().engines) {
    engine->collect(wait_ms, paths);
    count += engine->count_relays(relays.subspan(count));
  }
  return count;
}

// A signal may have come while this thread has the lock.
size_t try_to_collect(int wait_ms, multipath::PathCounts& paths,
                      std::span<multipath::RelayCount> relays) noexcept {
  const std::unique_lock lock(process().lock, std::try_to_lock);
  return lock ? collect(wait_ms, paths, relays) : 0;
}

// What the first engine of the process asks for holds.
Error watch_copies(const Options& options) {
  const std::lock_guard lock(process().lock);
  if (!options.log.empty() && process().log.load() == nullptr) {
    auto path = preload::find_log(options.log, getpid());
    if (!path.ok()) return Error::from(path.status(), BRAID_ERROR_OPTION);
    process().log.store(std::make_unique<std::string>(std::move(path).value()).release());
  }
  if (process().is_reporting || options.stats == StatsFormat::kNone) return Error::none();
  process().is_reporting = true;
  const auto statistics = []() noexcept -> const preload::Statistics& {
    return process().statistics;
  };
  return Error::from(preload::start_reporting(options, {statistics, try_to_collect}),
                     BRAID_ERROR_OPTION);
}

class OwnEngine final : public Backend {
 public:
  explicit OwnEngine(cuda::Driver driver) : driver_(std::move(driver)) {}
  ~OwnEngine() override;

  Error open(const Options& options);
  const cuda::Driver& driver() const override { return driver_; }
  Engine* engine() override { return engine_.get(); }
  Status add_context(CUcontext context) override { return engine_->add_context(context); }
  void open_relays() noexcept override {}  // they are opening
  void count(const preload::CopyRecord& record) noexcept override;
  std::string statistics(int wait_ms) override;

 private:
  Error open_in_background(const Options& options);
  void open_all_relays();

  const cuda::Driver driver_;
  std::unique_ptr<Engine> engine_;  // uses driver_
  multipath::Thread opener_;
  std::atomic<bool> stops_{false};
};

OwnEngine::~OwnEngine() {
  stops_ = true;
  opener_.join();
  if (engine_ == nullptr) return;
  const std::lock_guard lock(process().lock);
  constexpr int kLastCopiesMs = 500;
  engine_->collect(kLastCopiesMs, process().closed);
  std::erase(process().engines, engine_.get());
}

Error OwnEngine::open(const Options& options) {
  const Status started = driver_.check(driver_.cuInit(0), "starting CUDA");
  if (!started.ok()) return Error::from(started, BRAID_ERROR_UNAVAILABLE);
  if (Error failed = watch_copies(options); !failed.ok()) return failed;
  if (!options.waits_for_relays) return open_in_background(options);
  auto opened = Engine::open(driver_, options);
  if (!opened.ok()) return Error::from(opened.status(), BRAID_ERROR_UNAVAILABLE);
  engine_ = std::move(opened).value();
  engine_->grant_default_pools();
  return Error::none();
}

Error OwnEngine::open_in_background(const Options& options) {
  auto prepared = Engine::create(driver_, options);
  if (!prepared.ok()) return Error::from(prepared.status(), BRAID_ERROR_UNAVAILABLE);
  engine_ = std::move(prepared).value();
  (void)engine_->add_context(nullptr);  // what fails is in problems()
  engine_->request_relays(multipath::kEveryGpu);
  if (!opener_.start([](void* self) { static_cast<OwnEngine*>(self)->open_all_relays(); }, this))
    return {BRAID_ERROR_UNAVAILABLE, "the process may not have another thread to open relays with"};
  return Error::none();
}

// What fails is in problems(); copies are native then.
void OwnEngine::open_all_relays() try {
  Result<bool> is_more = true;
  while (!stops_ && is_more.ok() && is_more.value()) is_more = engine_->open_next_relay();
  if (stops_) return;
  engine_->grant_default_pools();
  engine_->open_targets();
} catch (...) {  // no memory: copies stay native
}

void OwnEngine::count(const preload::CopyRecord& record) noexcept {
  process().statistics.add(record.entry_point, record.outcome, record.size_bytes, record.cost_ns);
  const std::string* log = process().log.load(std::memory_order_acquire);
  if (log != nullptr && record.size_bytes >= engine_->threshold_bytes())
    preload::append_log_line(*log, getpid(), record);
}

std::string OwnEngine::statistics(int wait_ms) {
  const auto paths = std::make_unique<multipath::PathCounts>();
  std::array<multipath::RelayCount, multipath::kMostGpus> relays;
  const std::lock_guard lock(process().lock);
  const size_t count = collect(wait_ms, *paths, relays);
  return render_json(process().statistics, *paths, std::span(relays).first(count),
                     engine_->problems());
}

}  // namespace

Error open_backend(const Options& options, std::unique_ptr<Backend>& backend) {
  auto driver = cuda::open_driver();
  if (!driver.ok()) return Error::from(driver.status(), BRAID_ERROR_UNAVAILABLE);
  auto own = std::make_unique<OwnEngine>(std::move(driver).value());
  if (Error failed = own->open(options); !failed.ok()) return failed;
  {
    const std::lock_guard lock(process().lock);
    process().engines.push_back(own->engine());
  }
  backend = std::move(own);
  return Error::none();
}

}  // namespace braid::library
