// Errors of calls that have one of the causes of requests: `Status::cause` is that cause.
#pragma once

#include <string>
#include <utility>

#include "base/status.h"
#include "fabric/versions.h"
#include "transfer/types.h"

namespace braid::transfer {

inline Status failure(Cause cause, std::string what, std::string remedy = {}) {
  return Status::error(std::move(what), std::move(remedy)).with_cause(static_cast<int>(cause));
}
inline Status failure(Cause cause) { return failure(cause, cause_name(cause)); }
inline Status no_more_descriptors(const std::string& what) {
  return failure(Cause::kTooMuch, what + ": this process may open no more descriptors",
                 "Raise `ulimit -n`: docs/cluster.md says what a peer takes");
}
inline Status no_such_segment() {
  return failure(Cause::kNoSegment, "there is no such segment (any more)");
}
/// kNone: the error has none of the causes.
inline Cause cause_of(const Status& status) { return static_cast<Cause>(status.cause()); }
/// An answer of the fabric, whose errors have causes of their own.
template <typename T>
Result<T> from_fabric(Result<T> answer) {
  if (answer.ok() || !fabric::is_other_version(answer.status())) return answer;
  return failure(Cause::kOtherVersion, answer.status().message());
}

}  // namespace braid::transfer
