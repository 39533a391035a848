// Errors as values. A Status says what went wrong and what the user can do about it; a Result holds
// either a value or such a Status, so that no object exists half-built. A program tells causes
// apart by the code, which is that of the C interface; the message is for people.
//
// Both own what they hold. Threads: like any value, one writer or many readers. Whoever takes the
// value() of a Result that holds an error gets std::bad_variant_access; ask ok() first. Nothing
// else here throws beyond what copying a string or a value may. C++17.
#pragma once

#include <cassert>
#include <string>
#include <utility>
#include <variant>

#include "braid/braid.h"

namespace braid {

class [[nodiscard]] Status {
 public:
  Status() = default;  // success

  /// `cause` names the input and what is wrong with it; `remedy`, if any, what to do.
  /// `cuda_result` is the driver's answer, if the driver refused. The code is BRAID_ERROR_ARGUMENT.
  static Status error(std::string cause, std::string remedy = {}, int cuda_result = 0) {
    if (!remedy.empty()) cause += ". " + remedy;
    return of(BRAID_ERROR_ARGUMENT, std::move(cause), cuda_result);
  }
  /// The answer of a C function that has failed with this code.
  static Status of(braid_status code, std::string message, int cuda_result = 0) {
    Status status;
    status.code_ = code;
    status.cuda_result_ = cuda_result;
    status.message_ = std::move(message);
    return status;
  }

  bool ok() const { return code_ == BRAID_OK; }
  /// What went wrong, for the program: braid.h says what each code means, and the header of the C
  /// interface which function returns which.
  braid_status code() const { return code_; }
  const std::string& message() const { return message_; }
  /// The CUresult with which the driver refused; 0 when it was not the driver.
  int cuda_result() const { return cuda_result_; }
  /// A finer kind of error than the code, as the library that gives it defines it; 0: none.
  /// Transfers give a braid_transfer_cause, Rotation::create a braid_kv_refusal.
  int cause() const { return cause_; }
  Status with_cause(int cause) && {
    cause_ = cause;
    return std::move(*this);
  }

 private:
  braid_status code_ = BRAID_OK;
  int cuda_result_ = 0;
  int cause_ = 0;
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
  /// By value, so that a loop over the value() of a call's answer has something to go through.
  T value() && { return std::get<T>(std::move(state_)); }
  Status status() const { return ok() ? Status() : std::get<Status>(state_); }

 private:
  std::variant<T, Status> state_;
};

}  // namespace braid
