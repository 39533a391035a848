// Start here: braid for C++ programs that link it.
//
//   auto opened = braid::Engine::open();
//   if (!opened.ok()) return complain(opened.status().message());
//   braid::Engine engine = std::move(opened).value();
//   auto copied = engine.copy(braid::at(device), host, size_bytes, stream);
//   if (!copied.ok()) ...                    // what cuMemcpyAsync would have refused
//   if (!copied.value().is_accelerated())    // still copied, by the driver
//     log(copied.value().reason);
//
// An Engine copies between host memory and GPUs over every PCIe link of the server, in the order of
// the caller's stream, as cuMemcpyAsync and cuMemcpyBatchAsync do over one. A copy that it cannot
// speed up is made by the driver in the same place of the stream.
//
// This is a header over the C interface, so that no C++ type crosses the library's border. braid.h
// says, once for both, who owns memory and lists, what blocks, which streams there are, what an
// error leaves behind, and which sections of the paper this is.
//
// Ownership: an Engine owns its braid_engine; closing waits for copies in flight.
// Threads: every member may be called from any thread at once, but not beside moving or destroying.
// Errors: Status and Result (status.h); Status::cuda_result is the driver's CUresult. The library
// throws nothing; this header std::bad_alloc alone, and value() of an error as status.h says. Sizes
// are bytes. C++17 and newer.
#pragma once

#include <cstddef>
#include <cstdint>
#include <iterator>
#include <memory>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "braid/braid.h"
#include "braid/c_calls.h"
#include "braid/status.h"

namespace braid {

enum class Urgency { kBulk = BRAID_PRIORITY_BULK, kUrgent = BRAID_PRIORITY_URGENT };

/// How a call's copies travel; see braid_outcome.
struct Copied {
  uint64_t accelerated_bytes = 0;
  uint64_t native_bytes = 0;
  const char* reason = "";
  bool is_accelerated() const { return native_bytes == 0; }
};

/// A CUdeviceptr as the address that copies take.
inline void* at(uint64_t device_address) { return reinterpret_cast<void*>(device_address); }

/// A list that a call reads: an address and a length, an array, a std::vector, a std::span.
template <typename T>
class List {
 public:
  List() = default;
  List(T* first, size_t count) : first_(first), count_(count) {}
  template <typename Container, typename = std::enable_if_t<std::is_convertible_v<
                                    decltype(std::data(std::declval<Container&>())), T*>>>
  List(Container&& container) : first_(std::data(container)), count_(std::size(container)) {}

  T* data() const { return first_; }
  size_t size() const { return count_; }

 private:
  T* first_ = nullptr;
  size_t count_ = 0;
};

/// One end of a copy of rows: the first row, and from the start of one row to that of the next.
template <typename Address>
struct Rows {
  Address first;
  size_t pitch_bytes;
};

class Engine : detail::CCalls<braid_last_error, braid_last_cuda_error> {
 public:
  /// `options` are rows of docs/options.md; what is not listed comes from the environment.
  static Result<Engine> open(List<const braid_option> options = {}) {
    const braid_options all{sizeof(braid_options), options.data(), options.size()};
    braid_engine* engine = nullptr;
    if (const Status failed = status_of(braid_open(&all, &engine)); !failed.ok()) return failed;
    return Engine(engine);
  }

  /// Makes the current context known before its first copy; see braid_prepare.
  Status prepare() { return status_of(braid_prepare(get())); }

  /// Before `context` (a CUcontext) is destroyed or reset.
  Status forget_context(CUctx_st* context) {
    return status_of(braid_forget_context(get(), context));
  }

  Result<Copied> copy(void* destination, const void* source, size_t size_bytes, CUstream_st* stream,
                      Urgency urgency = Urgency::kBulk) {
    return ask([&](braid_outcome* outcome) {
      return braid_copy(get(), destination, source, size_bytes, stream, priority(urgency), outcome);
    });
  }

  /// `row_count` rows of `row_bytes` each; see braid_copy_rows.
  Result<Copied> copy_rows(Rows<void*> destination, Rows<const void*> source, size_t row_bytes,
                           size_t row_count, CUstream_st* stream,
                           Urgency urgency = Urgency::kBulk) {
    return ask([&](braid_outcome* outcome) {
      return braid_copy_rows(get(), destination.first, destination.pitch_bytes, source.first,
                             source.pitch_bytes, row_bytes, row_count, stream, priority(urgency),
                             outcome);
    });
  }

  /// What `copy` would make of this copy now; nothing is put into the stream.
  Result<Copied> forecast(void* destination, const void* source, size_t size_bytes,
                          CUstream_st* stream, Urgency urgency = Urgency::kBulk) {
    return forecast_batch({&destination, 1}, {&source, 1}, {&size_bytes, 1}, stream, urgency);
  }

  /// The same of `copy_batch`.
  Result<Copied> forecast_batch(List<void* const> destinations, List<const void* const> sources,
                                List<const size_t> sizes, CUstream_st* stream,
                                Urgency urgency = Urgency::kBulk) {
    if (destinations.size() != sources.size() || sources.size() != sizes.size())
      return unequal_lists();
    return ask([&](braid_outcome* outcome) {
      return braid_forecast(get(), destinations.data(), sources.data(), sizes.data(), sizes.size(),
                            stream, priority(urgency), outcome);
    });
  }

  /// Copies without an order among each other. The three lists are of one length.
  Result<Copied> copy_batch(List<void* const> destinations, List<const void* const> sources,
                            List<const size_t> sizes, CUstream_st* stream,
                            Urgency urgency = Urgency::kBulk) {
    if (destinations.size() != sources.size() || sources.size() != sizes.size())
      return unequal_lists();
    return ask([&](braid_outcome* outcome) {
      return braid_copy_batch(get(), destinations.data(), sources.data(), sizes.data(),
                              sizes.size(), stream, priority(urgency), outcome);
    });
  }

  /// Many pieces into one range, one behind the other.
  Result<Copied> gather(void* destination, List<const void* const> sources,
                        List<const size_t> sizes, CUstream_st* stream,
                        Urgency urgency = Urgency::kBulk) {
    if (sources.size() != sizes.size()) return unequal_lists();
    return ask([&](braid_outcome* outcome) {
      return braid_gather(get(), destination, sources.data(), sizes.data(), sizes.size(), stream,
                          priority(urgency), outcome);
    });
  }

  /// One range into many pieces.
  Result<Copied> scatter(List<void* const> destinations, const void* source,
                         List<const size_t> sizes, CUstream_st* stream,
                         Urgency urgency = Urgency::kBulk) {
    if (destinations.size() != sizes.size()) return unequal_lists();
    return ask([&](braid_outcome* outcome) {
      return braid_scatter(get(), destinations.data(), source, sizes.data(), sizes.size(), stream,
                           priority(urgency), outcome);
    });
  }

  /// The paths that one copy between the host and a GPU (its ordinal) would take now: its own link
  /// first. Only that one: the copy would be native; none: the engine knows nothing. See
  /// braid_paths.
  Result<std::vector<braid_path>> paths(int gpu, bool to_device, size_t size_bytes) {
    std::vector<braid_path> all(1);
    for (size_t count = all.size();;) {
      all.resize(count);
      const braid_status status =
          braid_paths(get(), gpu, to_device, size_bytes, all.data(), all.size(), &count);
      if (status != BRAID_OK) return status_of(status);
      if (count > all.size()) continue;
      all.resize(count);
      return all;
    }
  }

  /// One line of JSON; see braid_stats_json.
  Result<std::string> statistics() {
    return text([&](char* buffer, size_t size_bytes, size_t* needed_bytes) {
      return braid_stats_json(get(), buffer, size_bytes, needed_bytes);
    });
  }

  /// For calling the C interface with the same engine; null after it was moved from.
  braid_engine* get() const { return engine_.get(); }

 private:
  struct Close {
    void operator()(braid_engine* engine) const { braid_close(engine); }
  };

  explicit Engine(braid_engine* engine) : engine_(engine) {}

  static Status unequal_lists() { return Status::error("the lists differ in length"); }
  static int priority(Urgency urgency) { return static_cast<int>(urgency); }

  template <typename Call>
  static Result<Copied> ask(const Call& call) {
    braid_outcome outcome{sizeof(braid_outcome), 0, 0, ""};
    if (const Status failed = status_of(call(&outcome)); !failed.ok()) return failed;
    return Copied{outcome.accelerated_bytes, outcome.native_bytes, outcome.reason};
  }

  std::unique_ptr<braid_engine, Close> engine_;
};

}  // namespace braid
