// One descriptor for all stations of a domain (epoll). It waits for their queues' descriptors, if
// the provider has such, or for their doorbell.
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

  /// The station or endpoint stays open until it is removed. The first one is removed last.
  void add(const Station& station);
  void remove(const Station& station);
  /// The station is being closed, and may be readable all the time: what listened there was shut
  /// down. The descriptor becomes readable now and then instead, until the station is removed.
  void close(const Station& station);
  void add_endpoint(Bytes name);
  void remove_endpoint(Bytes name);
  /// -1: no descriptor tells.
  int descriptor() const { return descriptor_; }
  /// True: anything that comes from now on makes the descriptor readable. Nobody rings when one of
  /// our own postings has ended; so if `is_answer_awaited`, the descriptor becomes readable soon
  /// anyway.
  bool arm(const Provider& provider, bool is_answer_awaited);

 private:
  void watch(int descriptor);
  bool forget(const Station& station);
  bool has_timer();
  void set_timer(long ns);

  const bool has_doorbell_;
  Doorbell doorbell_;
  bool has_told_all_ = true;  // peers can ring at each endpoint
  int timer_ = -1;
  bool is_timed_ = false;  // the timer runs, or has expired
  int descriptor_ = -1;
  bool is_blind_ = false;  // there was no descriptor for the first one: none tells
  std::vector<fid*> queues_;
  std::vector<fid*> closing_;  // queues that were among them
};

}  // namespace braid::fabric::ofi
