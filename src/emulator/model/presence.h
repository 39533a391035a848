// Whether the program is active: its threads are in the driver, or have been recently. The helper
// thread carries work on only while they are silent. A thread that waits in the driver runs the
// simulation itself, and must find it as it was when the wait ended. So silence begins only when
// the thread has left the driver. The world's lock covers all of it.
#pragma once

#include <cstdint>

namespace braid::emulator {

class Presence {
 public:
  /// The visit of a thread to the driver, from its call to its return.
  class Visit {
   public:
    explicit Visit(Presence& presence) : presence_(presence) { ++presence_.inside_; }
    ~Visit() {
      --presence_.inside_;
      ++presence_.ended_;
    }
    Visit(const Visit&) = delete;
    Visit& operator=(const Visit&) = delete;

   private:
    Presence& presence_;
  };

  bool is_inside() const { return inside_ > 0; }
  /// Number of ended visits, so that short ones are noticed too.
  uint64_t ended() const { return ended_; }

 private:
  int inside_ = 0;
  uint64_t ended_ = 0;
};

}  // namespace braid::emulator
