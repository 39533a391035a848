#include "fabric/ofi/guard.h"

#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <map>
#include <mutex>
#include <utility>

#include "base/try.h"
#include "fabric/ofi/imports.h"

namespace braid::fabric::ofi {
namespace {

thread_local Listening* current = nullptr;

/// What is guarded in this process.
class Directory {
 public:
  void add(Guarded::Where where, const TcpEnd& end, const SharedGuard& guard) {
    const std::lock_guard lock(mutex_);
    Entry& entry = of(where)[end];
    ++entry.users;
    entry.guard = guard;
  }
  void remove(Guarded::Where where, const TcpEnd& end) {
    const std::lock_guard lock(mutex_);
    const auto found = of(where).find(end);
    if (--found->second.users == 0) of(where).erase(found);
  }
  SharedGuard find(Guarded::Where where, const std::optional<TcpEnd>& end) {
    const std::lock_guard lock(mutex_);
    if (!end) return nullptr;
    const auto found = of(where).find(*end);
    return found == of(where).end() ? nullptr : found->second.guard;
  }

 private:
  struct Entry {
    size_t users = 0;
    SharedGuard guard;
  };
  using Places = std::map<TcpEnd, Entry>;
  Places& of(Guarded::Where where) {
    return where == Guarded::Where::kListener ? listeners_ : peers_;
  }

  std::mutex mutex_;
  Places listeners_, peers_;
};

/// Never destroyed: domains may end later than static objects.
Directory& directory() {
  static auto& directory = *new Directory;  // owner: the process
  return directory;
}

constinit Before<int(int, int)> listen_before;
constinit Before<int(int, sockaddr*, socklen_t*)> accept_before;
constinit Before<int(int, int, int, void*, socklen_t*)> getsockopt_before;

// ---- What libfabric calls ----

int listen_guarded(int socket, int backlog) {
  const int answer = listen_before(socket, backlog);
  const auto at = TcpEnd::own_of(socket);
  if (answer == 0 && current != nullptr && at) current->begun(*at);
  return answer;
}

/// A connection that is refused is as if it had not come yet.
int accept_guarded(int listener, sockaddr* name, socklen_t* name_bytes) {
  const int connection = accept_before(listener, name, name_bytes);
  if (connection < 0) return connection;
  const SharedGuard guard = directory().find(Guarded::Where::kListener, TcpEnd::own_of(listener));
  if (guard == nullptr || guard->takes(connection)) return connection;
  close(connection);
  errno = EAGAIN;
  return -1;
}

/// A connection that is refused has failed as if nobody listened there.
int getsockopt_guarded(int socket, int level, int option, void* value, socklen_t* value_bytes) {
  const int answer = getsockopt_before(socket, level, option, value, value_bytes);
  const bool is_look = level == SOL_SOCKET && option == SO_ERROR && *value_bytes == sizeof(int);
  int error = 0;
  if (answer != 0 || !is_look) return answer;
  std::memcpy(&error, value, sizeof error);
  if (error != 0) return answer;
  const auto peer = TcpEnd::peer_of(socket);
  const SharedGuard guard = directory().find(Guarded::Where::kPeer, peer);
  if (guard == nullptr || guard->keeps(*peer)) return answer;
  error = ECONNREFUSED;
  std::memcpy(value, &error, sizeof error);
  return answer;
}

}  // namespace

Status guard_connections(void* libfabric) {
  BRAID_TRY(listen_before.replace(libfabric, "listen", listen_guarded));
  BRAID_TRY(accept_before.replace(libfabric, "accept", accept_guarded));
  return getsockopt_before.replace(libfabric, "getsockopt", getsockopt_guarded);
}

Status Guard::check(Bytes address) const {
  if (admits_ == Admits::kAnybody) return {};
  const auto at = TcpEnd::of(address.data(), address.size());
  if (!at || at->is_wildcard()) return Status::error("this is no address of one peer");
  const Whose whose = whose_listener(*at);
  if (whose == Whose::kNobodys || is_admitted(admits_, whose)) return {};
  return refusal(whose, "the peer", *at);
}

/// A peer that has gone already is refused, and not counted: it may have been one of this user.
bool Guard::judge(Whose whose) {
  const bool is_in = is_admitted(admits_, whose);
  if (!is_in && whose != Whose::kNobodys) ++refused_;
  return is_in;
}

bool Guard::takes(int connection) {
  const auto its = TcpEnd::peer_of(connection), own = TcpEnd::own_of(connection);
  return judge(its && own ? whose_connection(*its, *own) : Whose::kNobodys);
}

bool Guard::keeps(const TcpEnd& listener) { return judge(whose_listener(listener)); }

Guarded Guarded::peer(Bytes address, const SharedGuard& guard) {
  const auto end = TcpEnd::of(address.data(), address.size());
  if (!end || guard->admits() == Admits::kAnybody) return {};
  directory().add(Where::kPeer, *end, guard);
  return {Where::kPeer, *end};
}

Guarded& Guarded::operator=(Guarded&& other) noexcept {
  if (this == &other) return *this;
  leave();
  where_ = other.where_;
  end_ = std::exchange(other.end_, std::nullopt);
  return *this;
}

void Guarded::leave() {
  if (end_) directory().remove(where_, *end_);
  end_.reset();
}

Listening::Listening(const SharedGuard& guard) : guard_(guard) { current = this; }

Listening::~Listening() { current = nullptr; }

void Listening::begun(const TcpEnd& at) {
  if (guard_->admits() == Admits::kAnybody) return;
  directory().add(Guarded::Where::kListener, at, guard_);
  guarded_ = Guarded(Guarded::Where::kListener, at);
}

}  // namespace braid::fabric::ofi
