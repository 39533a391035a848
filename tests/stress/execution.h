// Runs programs, one after the other, and says what came of each in one line:
//   SEED memory=HASH notes=HASH errors=THREAD.STEP:CODE,... order=ok
// `memory` is of all regions at the end, `notes` of what CPU and host functions saw underway.
#pragma once

#include <memory>
#include <string>

#include "stress/calls.h"
#include "stress/program.h"

namespace braid::stress {

class Runner {
 public:
  /// Of programs for so many GPUs. With `traces`, every operation is said on stderr before it is
  /// done.
  Runner(const Calls& calls, int gpus, bool traces);
  ~Runner();
  std::string run(const Program& program);

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace braid::stress
