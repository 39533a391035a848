// Progress as three counts: steps of the model, copies from the GPU, copies to it. A Marks is a
// point in the progress of all three; a slot names the Marks after which it may be used again.
//
// A mark is the number of a step or of a batch of copies, from 1 on, in the order of their stream;
// 0 is before all of them. Plain values; std only.
#pragma once

#include <algorithm>
#include <cstdint>

namespace braid::kv {

/// The number of a step of the model, an epoch; or of a batch of copies.
using Mark = uint64_t;

struct Marks {
  Mark step = 0;  ///< steps of the model, which read and write the GPU's slots
  Mark down = 0;  ///< copies from the GPU to the host
  Mark up = 0;    ///< copies from the host to the GPU

  bool operator==(const Marks&) const = default;

  /// All work that `other` waits for has happened by now.
  bool covers(const Marks& other) const {
    return step >= other.step && down >= other.down && up >= other.up;
  }
  void join(const Marks& other) {
    step = std::max(step, other.step);
    down = std::max(down, other.down);
    up = std::max(up, other.up);
  }
};

}  // namespace braid::kv
