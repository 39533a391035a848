// Random copies between the regions that a thread may use: every entry point, every pair of kinds,
// odd sizes and offsets, no bytes at all.
#pragma once

#include <optional>
#include <vector>

#include "stress/owners.h"
#include "stress/program.h"
#include "stress/random.h"

namespace braid::stress {

class CopyMaker {
 public:
  CopyMaker(const Program& program, Random& random, Owners& owners)
      : program_(program), random_(random), owners_(owners) {}

  /// A copy in `stream` between two or more of `regions`, which it acquires. With `is_prompt` the
  /// call does not wait for anything. Nothing when the regions do not fit the call that was drawn.
  std::optional<Operation> make(int stream, const std::vector<int>& regions, bool is_prompt);

 private:
  CopyCall draw_call();
  bool fits(const Region& region, int stream, bool is_prompt) const;
  bool choose_pair(CopyCall call, const std::vector<int>& usable, bool is_prompt, int& to,
                   int& from);
  void add_linear(Copy& copy, int to, int from);
  void add_rows(Copy& copy, int to, int from);
  void add_batch(Copy& copy, const std::vector<int>& usable, bool is_prompt, int to, int from);
  void add_entries(Copy& copy, int to, int from);
  void add_boxes(Copy& copy, int to, int from);
  void take(const Copy& copy, int stream);
  void note_end(const Copy& copy);
  uint64_t some_bytes(uint64_t room);

  const Program& program_;
  Random& random_;
  Owners& owners_;
};

}  // namespace braid::stress
