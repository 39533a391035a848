// Sockets between processes of one user on one host. They carry small packets and file descriptors,
// and never block. Not synchronised.
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/status.h"
#include "fabric/domain.h"
#include "fabric/local/waker.h"
#include "host/file.h"

namespace braid::fabric::local {

struct Packet {
  std::vector<std::byte> bytes;
  File file;  ///< may be none
};

class Socket {
 public:
  /// Listens at an abstract name, which is not a file.
  static Result<Socket> listen(const std::string& name);
  /// None: nobody can be reached there. An error: it is another user's process, or this process may
  /// open no more files.
  static Result<std::optional<Socket>> connect(const std::string& name);
  /// The next connection; those of other users are turned away.
  std::optional<Socket> accept();

  /// False: the packet was not sent; there is no room, or the socket is broken.
  bool send(Bytes bytes, int file = -1);
  /// The next packet of at most kPacketBytesMax.
  std::optional<Packet> receive();
  /// The other end is closed, and there are no packets left.
  bool is_closed() const { return is_closed_; }
  /// The process at the other end when it connected.
  pid_t process() const { return process_; }
  /// Its pidfd. Not open: the process has ended, or the kernel names it to nobody.
  File process_file() const;
  /// Readable once a packet has come, or for a listener a connection.
  int descriptor() const { return file_.get(); }
  /// From now on it wakes the waker, which outlives it.
  void wakes(const Waker& waker) { watch_ = waker.watch(file_.get()); }

  static constexpr size_t kPacketBytesMax = 512;

 private:
  explicit Socket(File file) : file_(std::move(file)) {}
  bool identify();

  File file_;
  Watch watch_;
  pid_t process_ = 0;
  bool is_closed_ = false;
};

}  // namespace braid::fabric::local
