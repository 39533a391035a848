#include "transfer/directory/server.h"

#include <pthread.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <limits>
#include <utility>

#include "base/try.h"
#include "transfer/directory/live_report.h"
#include "transfer/failure.h"

namespace braid::transfer {
namespace {

/// The listeners of this process, which forked children close: the address would be taken for as
/// long as a child lives. One more than a descriptor; 0: none. Children keep those that find no
/// place here.
constinit std::array<std::atomic<int>, 64> listeners{};

void replace_listener(int before, int after) {
  for (auto& place : listeners)
    if (int expected = before; place.compare_exchange_strong(expected, after)) return;
}

void close_listeners_in_child() noexcept {
  for (auto& place : listeners)
    if (const int listener = place.exchange(0); listener != 0) close(listener - 1);
}

void close_in_children(const Descriptor& listener) {
  static const int watched = pthread_atfork(nullptr, nullptr, close_listeners_in_child);
  (void)watched;
  replace_listener(0, listener.get() + 1);
}

}  // namespace

Result<std::unique_ptr<DirectoryServer>> DirectoryServer::open(const HostAndPort& at,
                                                               const std::string& name,
                                                               const fabric::Secret& secret,
                                                               Asked engine) {
  std::unique_ptr<DirectoryServer> server(
      new DirectoryServer(secret, std::move(engine)));  // owner: server
  server->at_ = at;
  BRAID_LET(tcp, listen_at(at, server->at_.port));
  server->tcp_ = std::move(tcp);
  close_in_children(server->tcp_);
  server->events_ = Descriptor(epoll_create1(EPOLL_CLOEXEC));
  if (!server->events_.is_open()) return no_more_descriptors("what the directory waits by");
  server->watch(server->tcp_.get(), EPOLLIN, true);
  if (name.empty()) return server;
  BRAID_TRY(check_bare_name(name));
  BRAID_LET(folder, socket_folder());
  BRAID_LET(unix_socket, listen_at_path(folder + "/" + name));
  server->path_ = folder + "/" + name;
  server->unix_ = std::move(unix_socket);
  close_in_children(server->unix_);
  server->watch(server->unix_.get(), EPOLLIN, true);
  return server;
}

DirectoryServer::~DirectoryServer() {
  for (const Descriptor* each : {&tcp_, &unix_})
    if (each->is_open()) replace_listener(each->get() + 1, 0);
  if (!path_.empty()) unlink(path_.c_str());
}

void DirectoryServer::watch(int descriptor, uint32_t events, bool is_new) const {
  epoll_event event{};
  event.events = events;
  event.data.fd = descriptor;
  epoll_ctl(events_.get(), is_new ? EPOLL_CTL_ADD : EPOLL_CTL_MOD, descriptor, &event);
}

/// Accepts connections, or pauses: then new connections wait.
void DirectoryServer::listen(bool is_open) const {
  for (const Descriptor* each : {&tcp_, &unix_})
    if (each->is_open()) watch(each->get(), is_open ? uint32_t{EPOLLIN} : uint32_t{0}, false);
}

/// Otherwise epoll would report the waiting connection again and again.
void DirectoryServer::pause(uint64_t now_ns) {
  paused_until_ns_ = now_ns + kPauseNs;
  listen(false);
}

void DirectoryServer::resume() {
  paused_until_ns_ = 0;
  listen(true);
}

bool DirectoryServer::step(uint64_t now_ns) {
  if (paused_until_ns_ != 0 && now_ns >= paused_until_ns_) resume();
  std::array<epoll_event, 32> ready{};
  const int count = epoll_wait(events_.get(), ready.data(), static_cast<int>(ready.size()), 0);
  size_t ended = 0;
  for (int i = 0; i < count; ++i) {
    const int descriptor = ready[static_cast<size_t>(i)].data.fd;
    if (descriptor == tcp_.get()) accept_from(tcp_, now_ns);
    if (descriptor == unix_.get()) accept_from(unix_, now_ns);
    const auto connection = connections_.find(descriptor);
    if (connection == connections_.end() || advance(connection->second)) continue;
    connections_.erase(connection);
    ++ended;
  }
  ended += std::erase_if(connections_, [&](const auto& each) {
    const bool is_late = now_ns >= each.second.end_ns;
    statistics_.refused += is_late;
    return is_late;
  });
  if (paused_until_ns_ != 0 && ended > 0) resume();
  return count > 0;
}

uint64_t DirectoryServer::next_deadline_ns() const {
  uint64_t next_ns =
      paused_until_ns_ != 0 ? paused_until_ns_ : std::numeric_limits<uint64_t>::max();
  for (const auto& [descriptor, connection] : connections_)
    next_ns = std::min(next_ns, connection.end_ns);
  return next_ns;
}

void DirectoryServer::accept_from(const Descriptor& listener, uint64_t now_ns) {
  for (;;) {
    // Whoever came next would take "closed" for an engine that is lost: it waits instead.
    if (connections_.size() >= kConnectionsMax) return pause(now_ns);
    const int accepted = accept4(listener.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC);
    if (accepted < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return;
    if (accepted < 0 && (errno == EINTR || errno == ECONNABORTED)) continue;
    if (accepted < 0) return pause(now_ns);
    Connection connection;
    connection.socket = Descriptor(accepted);
    if (!is_admitted(listener, connection.socket)) continue;
    connection.end_ns = now_ns + kHalfOpenNs;
    watch(accepted, EPOLLIN, true);
    connections_[accepted] = std::move(connection);
  }
}

/// Whoever has left before it was looked at has asked nothing.
bool DirectoryServer::is_admitted(const Descriptor& listener, const Descriptor& connection) {
  if (&listener != &tcp_ || engine_.admits == Admits::kAnybody) return true;
  const auto its = TcpEnd::peer_of(connection.get()), own = TcpEnd::own_of(connection.get());
  const Whose whose = its && own ? whose_connection(*its, *own) : Whose::kNobodys;
  const bool is_in = braid::is_admitted(engine_.admits, whose);
  statistics_.refused += !is_in && whose != Whose::kNobodys;
  return is_in;
}

/// False: it is over.
bool DirectoryServer::advance(Connection& connection) {
  return connection.answer.empty() ? read_question(connection) : write_answer(connection);
}

bool DirectoryServer::read_question(Connection& connection) {
  std::array<std::byte, kQuestionBytesMax + kLengthBytes> buffer;
  std::vector<std::byte>& received = connection.received;
  const size_t room = buffer.size() - received.size();
  const ssize_t got = recv(connection.socket.get(), buffer.data(), room, 0);
  if (got <= 0) return got < 0 && (errno == EAGAIN || errno == EINTR);
  received.insert(received.end(), buffer.begin(), buffer.begin() + got);
  if (received.size() < kLengthBytes) return true;
  const size_t size_bytes = read_length(Bytes(received).first(kLengthBytes));
  if (size_bytes > kQuestionBytesMax || received.size() > size_bytes + kLengthBytes) {
    ++statistics_.refused;
    return false;
  }
  if (received.size() < size_bytes + kLengthBytes) return true;
  const std::vector<std::byte> answer = answer_to(Bytes(received).subspan(kLengthBytes));
  if (answer.empty()) return false;
  connection.answer = frame(answer);
  return write_answer(connection);
}

/// Empty: it is no question, and gets no answer.
std::vector<std::byte> DirectoryServer::answer_to(Bytes asked) {
  if (is_report_question(asked)) {
    auto report = answer_report(asked, secret_, engine_.incarnation,
                                [this] { return engine_.report(statistics_); });
    ++(report.ok() ? statistics_.answered : statistics_.refused);
    return report.ok() ? std::move(report).value() : refuse(asked, report.status(), secret_);
  }
  const Result<Question> question = decode_question(asked, secret_);
  if (!question.ok()) {
    ++statistics_.refused;
    return refuse(asked, question.status(), secret_);
  }
  Answer answer;
  answer.nonce = question.value().nonce;
  const Incarnation& wanted = question.value().incarnation;
  if (wanted != Incarnation{} && wanted != engine_.incarnation)
    answer.cause = Cause::kNoSegment;
  else
    answer.description = engine_.describe();
  ++statistics_.answered;
  return encode(answer, secret_, question.value().version);
}

bool DirectoryServer::write_answer(Connection& connection) {
  while (connection.sent_bytes < connection.answer.size()) {
    const ssize_t sent =
        send(connection.socket.get(), connection.answer.data() + connection.sent_bytes,
             connection.answer.size() - connection.sent_bytes, MSG_NOSIGNAL);
    if (sent < 0 && errno == EINTR) continue;
    if (sent < 0 && errno == EAGAIN) {
      watch(connection.socket.get(), EPOLLOUT, false);
      return true;
    }
    if (sent <= 0) return false;
    connection.sent_bytes += static_cast<size_t>(sent);
  }
  return false;
}

}  // namespace braid::transfer
