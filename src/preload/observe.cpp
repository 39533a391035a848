#include "preload/observe.h"

#include <unistd.h>

#include <memory>
#include <string>

#include "preload/log.h"
#include "preload/messages.h"
#include "preload/state.h"

namespace braid::preload {
namespace {

constinit std::atomic<const std::string*> log_path{nullptr};  // null: no log

int gpu_of(const multipath::Batch& batch) noexcept {
  int gpu = -1;
  driver()->cuPointerGetAttribute(&gpu, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, batch.first().device);
  return gpu;
}

void start_log(const std::string& where) {
  auto path = find_log(where, getpid());
  if (path.ok())
    log_path.store(std::make_unique<std::string>(std::move(path).value()).release());
  else
    say_once(path.status().message().c_str());
}

}  // namespace

constinit std::atomic<bool> Observation::is_observing_{false};

void start_observing(const Options& options) {
  if (!options.log.empty()) start_log(options.log);
  Observation::is_observing_.store(options.stats != StatsFormat::kNone ||
                                   log_path.load() != nullptr);
}

void Observation::record(EntryPoint entry_point, uint64_t size_bytes, const multipath::Batch* batch,
                         const multipath::Outcome& outcome, uint64_t cost_ns) noexcept {
  statistics().add(entry_point, outcome, size_bytes, cost_ns);
  const std::string* log = log_path.load(std::memory_order_acquire);
  if (log == nullptr || size_bytes < threshold_bytes()) return;
  const int gpu = batch != nullptr && driver() != nullptr ? gpu_of(*batch) : -1;
  append_log_line(*log, getpid(), {entry_point, size_bytes, batch, gpu, outcome, cost_ns});
}

}  // namespace braid::preload
