// Room to describe a copy of many pieces: one list for each thread, which grows to the largest copy
// that the thread has made and is then only reused.
#pragma once

#include <vector>

#include "multipath/transfer.h"

namespace braid::preload {

/// Empty; valid until the thread's next call.
inline std::vector<multipath::Segment>& scratch_segments() {
  static thread_local std::vector<multipath::Segment> segments;
  segments.clear();
  return segments;
}

}  // namespace braid::preload
