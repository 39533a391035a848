// One descriptor for the queues of all stations of a domain (epoll).
#pragma once

#include <vector>

#include "fabric/ofi/station.h"

namespace braid::fabric::ofi {

class Sleepers {
 public:
  Sleepers() = default;
  ~Sleepers();
  Sleepers(const Sleepers&) = delete;
  Sleepers& operator=(const Sleepers&) = delete;

  /// Stays until `remove`.
  void add(const Station& station);
  void remove(const Station& station);
  /// -1: a queue has none, or none was added.
  int descriptor() const { return descriptor_; }
  /// True: whatever comes from now on makes the descriptor readable.
  bool arm(const Provider& provider);

 private:
  int descriptor_ = -1;
  std::vector<fid*> queues_;
};

}  // namespace braid::fabric::ofi
