// What the classes of the C++ headers share to call the C interfaces. Programs need none of it.
// Threads: no state; the last error is that of the calling thread.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>

#include "braid/status.h"

namespace braid::detail {

/// Calls of the C interface with these functions of the last error; null: it has no such function.
template <const char* (*kLastError)(), int (*kLastCudaError)() = nullptr,
          int (*kLastCause)() = nullptr>
class CCalls {
 protected:
  template <typename Number>
  static uint64_t number(Number number) {
    return static_cast<uint64_t>(number);
  }
  /// The C interfaces know no negative times.
  static uint64_t us(std::chrono::microseconds limit) {
    return limit.count() < 0 ? 0 : static_cast<uint64_t>(limit.count());
  }

  static Status status_of(braid_status status) {
    if (status == BRAID_OK) return {};
    return Status::of(status, kLastError(), last<kLastCudaError>()).with_cause(last<kLastCause>());
  }
  /// `value` is what the call has filled in.
  template <typename Value>
  static Result<Value> result_of(braid_status status, Value& value) {
    if (status != BRAID_OK) return status_of(status);
    return std::move(value);
  }
  /// `call` gives a number.
  template <typename Number, typename Call>
  static Result<Number> numbered(const Call& call) {
    uint64_t number = 0;
    if (const Status failed = status_of(call(&number)); !failed.ok()) return failed;
    return Number{number};
  }
  /// `call` fills a buffer with text and says how long it is: it may be longer the next time.
  template <typename Call>
  static Result<std::string> text(const Call& call) {
    std::string text;
    size_t needed_bytes = 0;
    do {
      text.resize(needed_bytes);
      const braid_status status =
          call(text.empty() ? nullptr : text.data(), text.size(), &needed_bytes);
      if (status != BRAID_OK && needed_bytes <= text.size()) return status_of(status);
    } while (needed_bytes > text.size());
    text.resize(needed_bytes - 1);
    return text;
  }

 private:
  template <int (*kLast)()>
  static int last() {
    if constexpr (kLast == nullptr)
      return 0;
    else
      return kLast();
  }
};

}  // namespace braid::detail
