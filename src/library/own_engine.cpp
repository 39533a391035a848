// libbraid.so's backend. Engines come and go with braid_open and braid_close; the statistics and
// the log are the process's.
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "library/backend.h"
#include "preload/engine_thread.h"

namespace braid::library {
namespace {

using multipath::Engine;

// An engine that is open.
struct Running {
  Engine* engine;
  preload::EngineThread* thread;  // null: the engine is closing
};

// Never destroyed: the report at exit comes late.
struct Process {
  preload::Statistics statistics;
  std::mutex lock;
  std::vector<Running> engines;
  multipath::PathCounts closed;  // what those that are not have carried
  bool is_reporting = false;
  std::atomic<const std::string*> log{nullptr};  // null: none
};

Process& process() {
  static Process& instance = *new Process;  // owner: the process, until its end
  return instance;
}

const preload::Statistics& counted() noexcept { return process().statistics; }

// Under the lock. How many relays.
size_t collect(int wait_ms, multipath::PathCounts& paths,
               std::span<multipath::RelayCount> relays) noexcept {
  for (const multipath::PathCount& path : process().closed.all()) paths.add(path);
  size_t count = 0;
  for (const auto& [engine, thread] : process().engines) {
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

// A process that exits waits for relays that are being opened, but not for ever: the driver's own
// handlers do not expect a context to be made beside them.
void end_threads() noexcept {
  constexpr std::chrono::seconds kLongestStep{10};
  const std::unique_lock lock(process().lock, std::try_to_lock);
  if (!lock) return;
  for (const Running& running : process().engines)
    if (running.thread != nullptr) running.thread->end(kLongestStep);
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
  return Error::from(preload::start_reporting(options, {counted, try_to_collect}),
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
  Error open_relays_and_wait(const Options& options);
  Error open_in_background(const Options& options);

  const cuda::Driver driver_;
  std::unique_ptr<Engine> engine_;  // uses driver_
  std::optional<preload::EngineThread> thread_;
};

OwnEngine::~OwnEngine() {
  if (engine_ == nullptr) return;
  {
    const std::lock_guard lock(process().lock);
    for (Running& running : process().engines)
      if (running.engine == engine_.get()) running.thread = nullptr;
  }
  thread_.reset();  // waits for a relay that is being opened; others may have the lock meanwhile
  const std::lock_guard lock(process().lock);
  constexpr int kLastCopiesMs = 500;
  engine_->collect(kLastCopiesMs, process().closed);
  std::erase_if(process().engines,
                [this](const Running& running) { return running.engine == engine_.get(); });
}

Error OwnEngine::open(const Options& options) {
  const Status started = driver_.check(driver_.cuInit(0), "starting CUDA");
  if (!started.ok()) return Error::from(started, BRAID_ERROR_UNAVAILABLE);
  if (Error failed = watch_copies(options); !failed.ok()) return failed;
  if (Error failed =
          options.waits_for_relays ? open_relays_and_wait(options) : open_in_background(options);
      !failed.ok())
    return failed;
  // What fails is in problems(); copies are native then.
  thread_.emplace(
      *engine_, preload::EngineThread::Events{[](Engine& engine) { engine.grant_default_pools(); },
                                              [](const char*) noexcept {}, []() noexcept {}});
  const bool has_thread =
      thread_->start([](void* thread) { static_cast<preload::EngineThread*>(thread)->serve(); });
  if (!has_thread && !options.waits_for_relays)
    return {BRAID_ERROR_UNAVAILABLE, "the process may not have another thread to open relays with"};
  static const int at_exit = std::atexit(end_threads);
  (void)at_exit;
  const std::lock_guard lock(process().lock);
  process().engines.push_back({engine_.get(), &*thread_});
  return Error::none();
}

Error OwnEngine::open_relays_and_wait(const Options& options) {
  auto opened = Engine::open(driver_, options);
  if (!opened.ok()) return Error::from(opened.status(), BRAID_ERROR_UNAVAILABLE);
  engine_ = std::move(opened).value();
  engine_->grant_default_pools();
  return Error::none();
}

Error OwnEngine::open_in_background(const Options& options) {
  auto created = Engine::create(driver_, options);
  if (!created.ok()) return Error::from(created.status(), BRAID_ERROR_UNAVAILABLE);
  engine_ = std::move(created).value();
  (void)engine_->add_context(nullptr);  // what fails is in problems()
  engine_->request_relays(multipath::kEveryGpu);
  return Error::none();
}

void OwnEngine::count(const preload::CopyRecord& record) noexcept {
  process().statistics.add(record.entry_point, record.outcome, record.size_bytes, record.cost_ns);
  const std::string* log = process().log.load(std::memory_order_acquire);
  if (log != nullptr && record.size_bytes >= engine_->threshold_bytes())
    preload::append_log_line(*log, getpid(), record);
}

std::string OwnEngine::statistics(int wait_ms) {
  const std::lock_guard lock(process().lock);
  return render_json({counted, collect}, wait_ms, engine_->problems());
}

}  // namespace

Error open_backend(const Options& options, std::unique_ptr<Backend>& backend) {
  auto driver = cuda::open_driver();
  if (!driver.ok()) return Error::from(driver.status(), BRAID_ERROR_UNAVAILABLE);
  auto own = std::make_unique<OwnEngine>(std::move(driver).value());
  if (Error failed = own->open(options); !failed.ok()) return failed;
  backend = std::move(own);
  return Error::none();
}

}  // namespace braid::library
