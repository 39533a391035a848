// Return the error of a failed step from a function, in one line.
#pragma once

#include "base/status.h"

namespace braid {

inline bool failed(const Status& status) { return !status.ok(); }

}  // namespace braid

// Returns the step's error, if it has failed. The error is a Status, or another type that has
// `failed`.
#define BRAID_TRY(...) \
  if (const auto error_ = (__VA_ARGS__); failed(error_)) return error_

// Defines `variable`, the value of a Result. Returns the error, if it has none.
#define BRAID_LET(variable, ...)                            \
  auto variable##_or_ = (__VA_ARGS__);                      \
  if (!variable##_or_.ok()) return variable##_or_.status(); \
  auto& variable = variable##_or_.value()
