// One descriptor for all stations of a domain (epoll): of their queues, where the provider has
// such, or of their doorbell.
#pragma once

#include <vector>

#include "fabric/ofi/doorbell.h"
#include "fabric/ofi/station.h"

namespace braid::fabric::ofi {

class Sleepers {
 public:
  explicit Sleepers(const Quirks& quirks);
  ~Sleepers();
  Sleepers(const Sleepers&) = delete;
  Sleepers& operator=(const Sleepers&) = delete;

  /// The station, or further endpoint, stays until `remove`. The first stays longest.
  void add(const Station& station);
  void remove(const Station& station);
  void add_endpoint(Bytes name);
  void remove_endpoint(Bytes name);
  /// -1: nobody tells.
  int descriptor() const { return descriptor_; }
  /// True: whatever comes from now on makes the descriptor readable. Nobody rings when one of our
  /// own postings has ended: if `is_answer_awaited`, the descriptor becomes readable before long.
  bool arm(const Provider& provider, bool is_answer_awaited);

 private:
  void watch(int descriptor);

  const bool has_doorbell_;
  Doorbell doorbell_;
  bool has_told_all_ = true;  // each endpoint has a name that peers can ring at
  int timer_ = -1;
  int descriptor_ = -1;
  std::vector<fid*> queues_;
};

}  // namespace braid::fabric::ofi
