// Errors as values. A Status says what went wrong and what the user can do about it; a Result holds
// either a value or such a Status, so that no object exists half-built.
//
// Both own what they hold. Threads: like any value, one writer or many readers. Nothing here throws
// beyond what copying a string or a value may. C++17.
#pragma once

#include <cassert>
#include <string>
#include <utility>
#include <variant>

namespace braid {

class [[nodiscard]] Status {
 public:
  Status() = default;  // success

  /// `cause` names the input and what is wrong with it; `remedy`, if any, what to do.
  /// `cuda_result` is the driver's answer, if the driver refused.
  static Status error(std::string cause, std::string remedy = {}, int cuda_result = 0) {
    Status status;
    status.failed_ = true;
    status.cuda_result_ = cuda_result;
    status.message_ = std::move(cause);
    if (!remedy.empty()) status.message_ += ". " + remedy;
    return status;
  }

  bool ok() const { return !failed_; }
  const std::string& message() const { return message_; }
  /// The CUresult with which the driver refused; 0 when it was not the driver.
  int cuda_result() const { return cuda_result_; }
  /// The kind of error, as the library that gives it defines it; 0: none. Transfers give a
  /// braid_transfer_cause.
  int code() const { return code_; }
  Status with_code(int code) && {
    code_ = code;
    return std::move(*this);
  }

 private:
  bool failed_ = false;
  int cuda_result_ = 0;
  int code_ = 0;
  std::string message_;
};

template <typename T>
class [[nodiscard]] Result {
 public:
  Result(T value) : state_(std::move(value)) {}
  Result(Status status) : state_(std::move(status)) { assert(!std::get<Status>(state_).ok()); }

  bool ok() const { return std::holds_alternative<T>(state_); }
  const T& value() const& { return std::get<T>(state_); }
  T& value() & { return std::get<T>(state_); }
  T&& value() && { return std::get<T>(std::move(state_)); }
  Status status() const { return ok() ? Status() : std::get<Status>(state_); }

 private:
  std::variant<T, Status> state_;
};

}  // namespace braid
