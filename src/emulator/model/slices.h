// The contexts that have kernels on a GPU. The GPU runs one context at a time, in turns, so each
// context has a slice of it: a number, from 0, that it keeps while it has a kernel there. The
// world's lock covers it.
#pragma once

#include <cstdint>
#include <map>

namespace braid::emulator {

class Slices {
 public:
  /// A kernel of the context is on the GPU now. Returns the context's slice.
  int begin(uint64_t context);
  void end(uint64_t context);
  /// Contexts that share the GPU; at least 1.
  int sharers() const { return sharing_.empty() ? 1 : static_cast<int>(sharing_.size()); }

 private:
  struct Share {
    int slice = 0;
    int kernels = 0;
  };
  int lowest_free() const;

  std::map<uint64_t, Share> sharing_;  // by context
};

}  // namespace braid::emulator
