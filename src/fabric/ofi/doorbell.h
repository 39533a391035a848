// Doorbells tell a process that something was posted to it, over a provider that does not (shm). A
// doorbell is a Unix datagram socket beside libfabric's own files in /dev/shm. The doorbells of a
// domain's endpoints are names of one socket. A peer that posts to an endpoint which may be asleep
// rings there.
//
// A doorbell also shows whether its process lives, in any PID namespace: the kernel refuses a ring
// at the doorbell of a killed process. So the files that its libfabric left behind can be removed.
#pragma once

#include <sys/un.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "fabric/domain.h"
#include "host/same_user.h"

namespace braid::fabric::ofi {

/// The file of a shm endpoint in /dev/shm, by its libfabric address. Empty: this is no such
/// address.
std::string file_of(Bytes endpoint);
/// The other way round.
std::string endpoint_of(std::string_view file);
/// An error if this process cannot open the file, or `admits` does not name its user: another
/// user's, or one that is gone, or there is no descriptor for it. libfabric would use it all the
/// same, and the process would end there, or at a later peer, which libfabric gives the same place.
Status check_file(Bytes endpoint, Admits admits);

/// The doorbell of a domain. If the socket cannot be made, nobody can ring.
class Doorbell {
 public:
  Doorbell() = default;
  ~Doorbell();
  Doorbell(const Doorbell&) = delete;
  Doorbell& operator=(const Doorbell&) = delete;

  /// Adds an endpoint, by its libfabric address. False: peers cannot ring there.
  bool add(Bytes endpoint);
  void remove(Bytes endpoint);
  /// Readable once somebody has rung; -1: there is no socket.
  int descriptor() const { return socket_; }
  /// Whether somebody has rung since the last call.
  bool drain();

 private:
  std::vector<std::string> paths_;
  int socket_ = -1;
};

/// The doorbell of a peer's endpoint. A posting rings if the peer has not answered for a while, and
/// so may be asleep. It rings again while no answer comes, at growing intervals: so a ring that
/// came too early costs little, and a stopped peer is hardly rung.
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

/// Removes the files that killed processes of this user have left in /dev/shm: libfabric's files,
/// of some megabytes each, and the doorbells. Files without a doorbell stay.
void remove_left_files();

/// Whether a live process with a doorbell has this number in its own PID namespace.
bool has_live_doorbell(int process);

}  // namespace braid::fabric::ofi
