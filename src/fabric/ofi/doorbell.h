// How a process is told that something has been posted to it, over a provider that tells nobody
// (shm): a Unix datagram socket beside libfabric's own files in /dev/shm. Each endpoint's doorbell
// is a name of the same socket. Whoever posts to an endpoint that may be asleep rings there.
//
// A doorbell also shows whether its process lives, in whichever PID namespace: ringing at one that
// was left by a killed process is refused. So files that libfabric left behind can be removed.
#pragma once

#include <sys/un.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "fabric/domain.h"

namespace braid::fabric::ofi {

/// Of shm: an endpoint's file in /dev/shm, by its libfabric address. Empty: this is no such
/// address.
std::string file_of(Bytes endpoint);
/// The other way round.
std::string endpoint_of(std::string_view file);

/// Of a domain: where its process is told. Where it cannot be had, nothing is told.
class Doorbell {
 public:
  Doorbell() = default;
  ~Doorbell();
  Doorbell(const Doorbell&) = delete;
  Doorbell& operator=(const Doorbell&) = delete;

  /// Of an endpoint, by its libfabric address. False: peers cannot ring there.
  bool add(Bytes endpoint);
  void remove(Bytes endpoint);
  /// Readable once it has been rung; -1: nobody can.
  int descriptor() const { return socket_; }
  /// Whether it has been rung since.
  bool drain();

 private:
  std::vector<std::string> paths_;
  int socket_ = -1;
};

/// Of a peer's endpoint. A posting rings if the peer has not answered for a while, and so may be
/// asleep. What is not answered rings again, ever more seldom: a ring that came too early costs
/// little then, and a peer that is stopped is left alone.
class PeerDoorbell {
 public:
  PeerDoorbell() = default;
  explicit PeerDoorbell(Bytes endpoint);

  /// After each posting, and now and then while one is not answered.
  void ring(uint64_t now_ns) {
    if (now_ns >= due_ns_) ring_now(now_ns);
  }
  void answered(uint64_t now_ns) {
    pause_ns_ = kPauseNs;
    due_ns_ = now_ns + kPauseNs;
  }

  /// Less than a peer stays awake after something has come.
  static constexpr uint64_t kPauseNs = 40'000;

 private:
  static constexpr uint64_t kLongestPauseNs = 5'000'000;
  void ring_now(uint64_t now_ns);

  sockaddr_un path_{};
  uint64_t due_ns_ = 0;
  uint64_t pause_ns_ = kPauseNs;
};

/// Removes what endpoints of this user's killed processes have left in /dev/shm: libfabric's files,
/// of some megabytes each, and their doorbells. Files without a doorbell are left alone.
void remove_left_files();

/// Whether a process that calls itself by this number, in its PID namespace, has a doorbell and
/// lives.
bool has_live_doorbell(int process);

}  // namespace braid::fabric::ofi
