// The program's virtual time, one for all its threads. Its calls and waits move it. The world's
// lock covers it.
#pragma once

#include <algorithm>

#include "emulator/model/time.h"

namespace braid::emulator {

class VirtualClock {
 public:
  Time now() const { return now_; }
  void spend_us(double us) { now_ += from_us(us); }
  void wait_until(Time when) { now_ = std::max(now_, when); }

 private:
  Time now_ = 0;
};

}  // namespace braid::emulator
