// Room for the segments of a copy of many pieces: one list for each thread. It grows to the largest
// copy of the thread, and is then reused.
#pragma once

#include <vector>

#include "base/kept_by_thread.h"
#include "multipath/transfer.h"

namespace braid::preload {

/// An empty list, valid until the thread's next call. Null if the thread is ending and its list is
/// gone.
inline std::vector<multipath::Segment>* scratch_segments() {
  auto* segments = kept_by_thread<std::vector<multipath::Segment>>();
  if (segments != nullptr) segments->clear();
  return segments;
}

}  // namespace braid::preload
