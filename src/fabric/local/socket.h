// Sockets of one host, between processes of one user, that carry small packets and file
// descriptors. None blocks. Not synchronised.
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/status.h"
#include "fabric/domain.h"

namespace braid::fabric::local {

/// A file descriptor that is closed at the end.
class File {
 public:
  File() = default;
  explicit File(int number) : number_(number) {}
  File(File&& other) noexcept : number_(std::exchange(other.number_, -1)) {}
  File& operator=(File&& other) noexcept {
    std::swap(number_, other.number_);
    return *this;
  }
  ~File();
  int get() const { return number_; }
  bool is_open() const { return number_ >= 0; }

 private:
  int number_ = -1;
};

struct Packet {
  std::vector<std::byte> bytes;
  File file;  ///< may be none
};

class Socket {
 public:
  /// At a name that no file has.
  static Result<Socket> listen(const std::string& name);
  static Result<Socket> connect(const std::string& name);
  /// The next that has connected; others than this user's are turned away.
  std::optional<Socket> accept();

  /// False: not now, or never.
  bool send(Bytes bytes, int file = -1);
  /// The next packet of at most kPacketBytesMax.
  std::optional<Packet> receive();
  /// The other end is closed, and there are no packets left.
  bool is_closed() const { return is_closed_; }
  /// The process at the other end when it connected.
  pid_t process() const { return process_; }
  /// Readable once a packet, or at a listener a connection, has come.
  int descriptor() const { return file_.get(); }

  static constexpr size_t kPacketBytesMax = 512;

 private:
  explicit Socket(File file) : file_(std::move(file)) {}
  bool identify();

  File file_;
  pid_t process_ = 0;
  bool is_closed_ = false;
};

}  // namespace braid::fabric::local
