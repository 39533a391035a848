// The C interface: arguments in, status out; no exception leaves. See include/braid/braid.h.
#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "abi/call.h"
#include "base/kept_by_thread.h"
#include "base/sized_struct.h"
#include "base/try.h"
#include "braid/braid.h"
#include "library/copier.h"
#include "library/copy_list.h"
#include "library/error.h"
#include "library/settings.h"

namespace {

const char own_mark = 0;

}  // namespace

struct braid_engine {
  // Of the library that opened it: a program may find one function in libbraid_preload.so, and a
  // newer one in its own libbraid.so.
  const char* mark = &own_mark;
  std::unique_ptr<braid::library::Copier> copier;
};

namespace braid::library {
namespace {

static_assert(BRAID_PRIORITY_BULK == static_cast<int>(multipath::Priority::kBulk));
static_assert(BRAID_PRIORITY_URGENT == static_cast<int>(multipath::Priority::kUrgent));

braid_status report(Error error) {
  return error.ok() ? BRAID_OK
                    : abi::report(error.code, std::move(error.message), error.cuda_result);
}

// The status of the error that `body()` returns, or of what it throws.
template <typename Body>
braid_status guarded(const Body& body) noexcept {
  return abi::guarded([&] { return report(body()); });
}

Error check_engine(const braid_engine* engine) {
  if (engine == nullptr) return Error::argument("the engine is null");
  if (engine->mark == &own_mark) return Error::none();
  return Error::argument(
      "the engine was opened by another version of braid, that of `braid run`. Use one version");
}

Error check_call(const braid_engine* engine, int priority, const braid_outcome* outcome) {
  if (Error wrong = check_engine(engine); !wrong.ok()) return wrong;
  if (priority != BRAID_PRIORITY_BULK && priority != BRAID_PRIORITY_URGENT)
    return Error::argument(std::to_string(priority) + " is not a priority");
  if (outcome == nullptr) return Error::none();
  return Error::from(check_sized(outcome, "braid_outcome"), BRAID_ERROR_ARGUMENT);
}

struct Call {
  braid_engine* engine;
  preload::EntryPoint entry_point;
  CUstream stream;
  int priority;
  braid_outcome* outcome;
  bool is_forecast = false;
  bool spares_target = false;
};

// `copy(order, scratch, call_outcome)` does it.
template <typename Copying>
braid_status answer(const Call& call, const Copying& copy) noexcept {
  return guarded([&] {
    const auto& [engine, entry_point, stream, priority, outcome, is_forecast, spares_target] = call;
    if (Error wrong = check_call(engine, priority, outcome); !wrong.ok()) return wrong;
    const CopyCall order{entry_point, stream != nullptr ? stream : CU_STREAM_LEGACY,
                         static_cast<multipath::Priority>(priority), is_forecast, spares_target};
    CallOutcome call_outcome;
    Scratch* scratch = kept_by_thread<Scratch>();
    std::optional<Scratch> of_this_call;  // of a thread that is ending
    if (scratch == nullptr) scratch = &of_this_call.emplace();
    Error failed = copy(order, *scratch, call_outcome);
    if (failed.ok() && outcome != nullptr) {
      outcome->accelerated_bytes = call_outcome.accelerated_bytes - call_outcome.own_bytes;
      outcome->native_bytes = call_outcome.native_bytes + call_outcome.own_bytes;
      outcome->reason = multipath::verdict_name(call_outcome.reason);
    }
    return failed;
  });
}

braid_status copy_list(const Call& call, const Addresses& destinations, const Addresses& sources,
                       const size_t* sizes_bytes, size_t count) noexcept {
  return answer(call, [&](const CopyCall& order, Scratch& scratch, CallOutcome& call_outcome) {
    BRAID_TRY(list_copies(destinations, sources, sizes_bytes, count, scratch.copies));
    BRAID_TRY(scratch.overlap.check(scratch.copies));
    return call.engine->copier->copy(order, scratch, call_outcome);
  });
}

}  // namespace
}  // namespace braid::library

using namespace braid::library;
namespace abi = braid::abi;
namespace preload = braid::preload;

braid_status braid_open(const braid_options* options, braid_engine** engine) {
  return guarded([&] {
    if (engine == nullptr) return Error::argument("there is no place for the engine");
    *engine = nullptr;
    braid::Options settings;
    if (Error wrong = read_settings(options, settings); !wrong.ok()) return wrong;
    auto opened = std::make_unique<braid_engine>();
    if (Error failed = Copier::open(settings, opened->copier); !failed.ok()) return failed;
    *engine = opened.release();  // owner: the caller, until braid_close
    return Error::none();
  });
}

void braid_close(braid_engine* engine) { const std::unique_ptr<braid_engine> closed(engine); }

braid_status braid_prepare(braid_engine* engine) {
  return guarded([&] {
    Error wrong = check_engine(engine);
    return wrong.ok() ? engine->copier->prepare() : wrong;
  });
}

braid_status braid_forget_context(braid_engine* engine, CUctx_st* context) {
  return guarded([&] {
    Error wrong = check_engine(engine);
    if (wrong.ok() && context == nullptr) wrong = Error::argument("the context is null");
    if (wrong.ok()) engine->copier->forget_context(context);
    return wrong;
  });
}

braid_status braid_copy(braid_engine* engine, void* destination, const void* source,
                        size_t size_bytes, CUstream_st* stream, int priority,
                        braid_outcome* outcome) {
  return copy_list({engine, preload::k_braid_copy, stream, priority, outcome},
                   {.each = &destination}, {.each = &source}, &size_bytes, 1);
}

braid_status braid_copy_batch(braid_engine* engine, void* const* destinations,
                              const void* const* sources, const size_t* sizes_bytes, size_t count,
                              CUstream_st* stream, int priority, braid_outcome* outcome) {
  return copy_list({engine, preload::k_braid_copy_batch, stream, priority, outcome},
                   {.each = destinations}, {.each = sources}, sizes_bytes, count);
}

braid_status braid_copy_batch_sparing(braid_engine* engine, void* const* destinations,
                                      const void* const* sources, const size_t* sizes_bytes,
                                      size_t count, CUstream_st* stream, int priority,
                                      braid_outcome* outcome) {
  return copy_list({.engine = engine,
                    .entry_point = preload::k_braid_copy_batch_sparing,
                    .stream = stream,
                    .priority = priority,
                    .outcome = outcome,
                    .spares_target = true},
                   {.each = destinations}, {.each = sources}, sizes_bytes, count);
}

braid_status braid_gather(braid_engine* engine, void* destination, const void* const* sources,
                          const size_t* sizes_bytes, size_t count, CUstream_st* stream,
                          int priority, braid_outcome* outcome) {
  return copy_list({engine, preload::k_braid_gather, stream, priority, outcome},
                   {.first = destination}, {.each = sources}, sizes_bytes, count);
}

braid_status braid_scatter(braid_engine* engine, void* const* destinations, const void* source,
                           const size_t* sizes_bytes, size_t count, CUstream_st* stream,
                           int priority, braid_outcome* outcome) {
  return copy_list({engine, preload::k_braid_scatter, stream, priority, outcome},
                   {.each = destinations}, {.first = source}, sizes_bytes, count);
}

braid_status braid_copy_rows(braid_engine* engine, void* destination,
                             size_t destination_pitch_bytes, const void* source,
                             size_t source_pitch_bytes, size_t row_bytes, size_t row_count,
                             CUstream_st* stream, int priority, braid_outcome* outcome) {
  const Rows rows{reinterpret_cast<uint64_t>(destination),
                  destination_pitch_bytes,
                  reinterpret_cast<uint64_t>(source),
                  source_pitch_bytes,
                  row_bytes,
                  row_count};
  return answer({engine, preload::k_braid_copy_rows, stream, priority, outcome},
                [&](const CopyCall& order, Scratch& scratch, CallOutcome& call_outcome) {
                  if (Error wrong = check_rows(rows); !wrong.ok()) return wrong;
                  if (row_bytes == 0 || row_count == 0) return Error::none();
                  return engine->copier->copy_rows(order, rows, scratch, call_outcome);
                });
}

braid_status braid_forecast(braid_engine* engine, void* const* destinations,
                            const void* const* sources, const size_t* sizes_bytes, size_t count,
                            CUstream_st* stream, int priority, braid_outcome* outcome) {
  return copy_list({engine, preload::k_braid_copy_batch, stream, priority, outcome, true},
                   {.each = destinations}, {.each = sources}, sizes_bytes, count);
}

braid_status braid_paths(braid_engine* engine, int gpu, int to_device, size_t size_bytes,
                         braid_path* paths, size_t capacity, size_t* count) {
  return guarded([&] {
    if (Error wrong = check_engine(engine); !wrong.ok()) return wrong;
    if (count == nullptr || (paths == nullptr && capacity > 0))
      return Error::argument("there is no place for the paths, or for their number");
    const auto direction = to_device != 0 ? braid::multipath::Direction::kHostToDevice
                                          : braid::multipath::Direction::kDeviceToHost;
    const auto found = engine->copier->paths_of(gpu, direction, size_bytes);
    *count = found.size();
    for (size_t i = 0; i < std::min(capacity, found.size()); ++i)
      paths[i] = {found[i].gpu, found[i].size_bytes, found[i].pcie_gbps, found[i].nvlink_gbps};
    return Error::none();
  });
}

braid_status braid_stats_json(braid_engine* engine, char* buffer, size_t buffer_bytes,
                              size_t* needed_bytes) {
  return abi::guarded([&] {
    if (Error wrong = check_engine(engine); !wrong.ok()) return report(std::move(wrong));
    const std::string text = engine->copier->statistics();
    return abi::hand_out(text.c_str(), text.size() + 1, buffer, buffer_bytes, needed_bytes);
  });
}

const char* braid_last_error() { return abi::last_error(); }

int braid_last_cuda_error() { return abi::last_cuda_error(); }

const char* braid_status_name(int status) {
  switch (status) {
    case BRAID_OK: return "ok";
    case BRAID_ERROR_ARGUMENT: return "argument";
    case BRAID_ERROR_OPTION: return "option";
    case BRAID_ERROR_UNAVAILABLE: return "unavailable";
    case BRAID_ERROR_CUDA: return "cuda";
    case BRAID_ERROR_MEMORY: return "memory";
    case BRAID_ERROR_PEER: return "peer";
    case BRAID_ERROR_REGION: return "region";
  }
  return "unknown";
}

const char* braid_version() { return BRAID_VERSION; }
