// Room to describe a copy of many pieces: one list for each thread, which grows to the largest copy
// that the thread has made and is then only reused.
#pragma once

#include <vector>

#include "base/kept_by_thread.h"
#include "multipath/transfer.h"

namespace braid::preload {

/// Empty; valid until the thread's next call. Null: the thread is ending, and has none any more.
inline std::vector<multipath::Segment>* scratch_segments() {
  auto* segments = kept_by_thread<std::vector<multipath::Segment>>();
  if (segments != nullptr) segments->clear();
  return segments;
}

}  // namespace braid::preload
