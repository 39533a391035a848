// Who may use a region, and how it is handed over: what makes a program's result determined.
#pragma once

#include <vector>

#include "stress/program.h"
#include "stress/random.h"

namespace braid::stress {

class Owners {
 public:
  Owners(Program& program, Random& random)
      : program_(program), random_(random), uses_(program.regions.size()) {}

  /// Where the operations go that hand regions over: one thread's of a phase.
  void write_to(std::vector<Operation>& operations) { operations_ = &operations; }

  /// `stream` may use the region from here on, in its order.
  void acquire(int region, int stream);
  /// The host has waited: the CPU may use the region. Not while a stream is held.
  void settle(int region);
  /// A call has returned that says as much.
  void settled(int region) { uses_[region] = {}; }
  bool is_settled(int region) const { return uses_[region].stream < 0 && uses_[region].event < 0; }
  /// What may still use the region ends with work of this GPU.
  bool is_used_by(int region, int gpu) const;
  /// Leaves an event behind each use of `stream` (-1: of any): another thread may go on, or the
  /// stream may go.
  void leave(const std::vector<int>& regions, int stream);

  int record(int stream);

 private:
  struct Use {
    int stream = -1;  ///< whose work may be under way
    int event = -1;   ///< behind which it is
  };
  void wait(int stream, int event);

  Program& program_;
  Random& random_;
  std::vector<Use> uses_;
  std::vector<Operation>* operations_ = nullptr;
};

}  // namespace braid::stress
