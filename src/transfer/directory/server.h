// Answers processes that ask for this engine by name: over TCP, and over a Unix socket for a bare
// name. It never blocks and owns no thread; its driver waits for its one descriptor. A connection
// may ask one question, and has kHalfOpenNs for it.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "fabric/seal.h"
#include "host/same_user.h"
#include "transfer/description.h"
#include "transfer/directory/socket.h"

namespace braid::transfer {

struct DirectoryStatistics {
  uint64_t answered = 0;
  uint64_t refused = 0;  ///< malformed, without the secret, of another user, or too late
};

class DirectoryServer {
 public:
  static constexpr uint64_t kHalfOpenNs = 5'000'000'000;
  /// Further ones wait unaccepted until one of these has ended.
  static constexpr size_t kConnectionsMax = 256;
  /// How long it waits before it accepts again if this process may open no more descriptors, or the
  /// limit of connections is reached, unless a connection ends before.
  static constexpr uint64_t kPauseNs = 100'000'000;
  static constexpr size_t kQuestionBytesMax = 256;

  /// The engine that is asked. Its functions are called for questions with the secret alone.
  struct Asked {
    Incarnation incarnation{};
    std::function<Description()> describe;
    std::function<std::string(const DirectoryStatistics&)> report;  ///< how it does, as JSON
    Admits admits = Admits::kAnybody;  ///< over TCP; the folder of names is one user's
  };

  /// An empty `name`: no Unix socket.
  static Result<std::unique_ptr<DirectoryServer>> open(const HostAndPort& at,
                                                       const std::string& name,
                                                       const fabric::Secret& secret, Asked engine);
  ~DirectoryServer();

  /// Where it listens; the port is the one that was taken.
  const HostAndPort& at() const { return at_; }
  int descriptor() const { return events_.get(); }
  bool step(uint64_t now_ns);
  uint64_t next_deadline_ns() const;
  const DirectoryStatistics& statistics() const { return statistics_; }

 private:
  struct Connection {
    Descriptor socket;
    uint64_t end_ns = 0;
    std::vector<std::byte> received;
    std::vector<std::byte> answer;
    size_t sent_bytes = 0;
  };

  DirectoryServer(const fabric::Secret& secret, Asked engine)
      : secret_(secret), engine_(std::move(engine)) {}
  void watch(int descriptor, uint32_t events, bool is_new) const;
  void accept_from(const Descriptor& listener, uint64_t now_ns);
  bool is_admitted(const Descriptor& listener, const Descriptor& connection);
  void listen(bool is_open) const;
  void pause(uint64_t now_ns);
  void resume();
  bool advance(Connection& connection);
  bool read_question(Connection& connection);
  std::vector<std::byte> answer_to(Bytes asked);
  bool write_answer(Connection& connection);

  fabric::Secret secret_;
  Asked engine_;
  HostAndPort at_;
  std::string path_;
  Descriptor events_;  // an epoll
  Descriptor tcp_;
  Descriptor unix_;
  std::map<int, Connection> connections_;
  uint64_t paused_until_ns_ = 0;  // 0: it accepts
  DirectoryStatistics statistics_;
};

}  // namespace braid::transfer
