#include "host/tcp_owner.h"

#include <arpa/inet.h>
#include <linux/inet_diag.h>
#include <linux/netlink.h>
#include <linux/sock_diag.h>
#include <netinet/tcp.h>

#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fstream>

#include "base/try.h"
#include "host/file.h"

namespace braid {
namespace {

/// What a table says of one socket.
struct Entry {
  uint32_t state = 0;
  uid_t user = 0;
  uint64_t inode = 0;  // 0: its process has closed it, and the user says nothing
};
using Found = Result<std::optional<Entry>>;

Status no_answer(const std::string& why) {
  return Status::error("the kernel does not say whose TCP sockets are: " + why);
}

in6_addr mapped(const in_addr& four) {
  in6_addr address{};
  address.s6_addr[10] = address.s6_addr[11] = 0xff;
  std::memcpy(&address.s6_addr[12], &four, sizeof four);
  return address;
}

template <typename NameOf>
std::optional<TcpEnd> end_of(int socket, const NameOf& name_of) {
  sockaddr_storage name{};
  socklen_t size_bytes = sizeof name;
  if (name_of(socket, reinterpret_cast<sockaddr*>(&name), &size_bytes) != 0) return std::nullopt;
  return TcpEnd::of(&name, size_bytes);
}

sockaddr_storage socket_address(const TcpEnd& end, socklen_t& size_bytes) {
  sockaddr_storage storage{};
  if (end.is_four()) {
    sockaddr_in four{AF_INET, end.port, {}, {}};
    std::memcpy(&four.sin_addr, &end.address.s6_addr[12], sizeof four.sin_addr);
    std::memcpy(&storage, &four, size_bytes = sizeof four);
  } else {
    const sockaddr_in6 six{AF_INET6, end.port, 0, end.address, end.scope};
    std::memcpy(&storage, &six, size_bytes = sizeof six);
  }
  return storage;
}

// ---- sock_diag ----

struct Question {
  nlmsghdr header{};
  inet_diag_req_v2 body{};
};

void put(const TcpEnd& end, bool as_four, __be32 (&address)[4], __be16& port) {
  std::memcpy(address, as_four ? &end.address.s6_addr[12] : end.address.s6_addr,
              as_four ? sizeof(in_addr) : sizeof end.address);
  port = end.port;
}

/// The kernel looks up the socket that a packet from `other` to `its` would reach: a connection, or
/// else a listener.
Question question_of(const TcpEnd& its, const TcpEnd& other) {
  Question question;
  question.header = {sizeof question, SOCK_DIAG_BY_FAMILY, NLM_F_REQUEST, 1, 0};
  inet_diag_req_v2& body = question.body;
  body.sdiag_family = its.is_four() ? AF_INET : AF_INET6;
  body.sdiag_protocol = IPPROTO_TCP;
  body.idiag_states = ~uint32_t{0};
  put(its, its.is_four(), body.id.idiag_src, body.id.idiag_sport);
  put(other, its.is_four(), body.id.idiag_dst, body.id.idiag_dport);
  body.id.idiag_if = its.scope;
  body.id.idiag_cookie[0] = body.id.idiag_cookie[1] = INET_DIAG_NOCOOKIE;
  return question;
}

Found read_answer(const char* bytes, size_t size_bytes) {
  nlmsghdr header{};
  if (size_bytes < sizeof header) return no_answer("sock_diag is silent");
  std::memcpy(&header, bytes, sizeof header);
  if (header.nlmsg_type == NLMSG_ERROR && size_bytes >= sizeof header + sizeof(nlmsgerr)) {
    nlmsgerr failed{};
    std::memcpy(&failed, bytes + sizeof header, sizeof failed);
    if (failed.error == -ENOENT) return std::optional<Entry>();
    return no_answer(std::string("sock_diag: ") + std::strerror(-failed.error));
  }
  inet_diag_msg socket{};
  if (header.nlmsg_type != SOCK_DIAG_BY_FAMILY || size_bytes < sizeof header + sizeof socket)
    return no_answer("sock_diag has another form");
  std::memcpy(&socket, bytes + sizeof header, sizeof socket);
  return std::optional(Entry{socket.idiag_state, socket.idiag_uid, socket.idiag_inode});
}

Found ask_kernel(const TcpEnd& its, const TcpEnd& other) {
  const File kernel(socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_SOCK_DIAG));
  const Question question = question_of(its, other);
  std::array<char, 4096> answer{};
  if (!kernel.is_open() || send(kernel.get(), &question, sizeof question, 0) < 0)
    return no_answer(std::string("sock_diag: ") + std::strerror(errno));
  // The kernel has answered before `send` returns.
  const ssize_t size_bytes = recv(kernel.get(), answer.data(), answer.size(), MSG_DONTWAIT);
  return read_answer(answer.data(), size_bytes < 0 ? 0 : static_cast<size_t>(size_bytes));
}

/// A kernel without the module for TCP says of every socket that there is none. So a listener that
/// is there tells whether the answers mean something.
TcpTable find_table() {
  sockaddr_in name{AF_INET, 0, {htonl(INADDR_LOOPBACK)}, {}};
  const File listener(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (bind(listener.get(), reinterpret_cast<const sockaddr*>(&name), sizeof name) != 0 ||
      listen(listener.get(), 1) != 0)
    return TcpTable::kSockDiag;
  const auto at = TcpEnd::own_of(listener.get());
  const Found found = ask_kernel(*at, at->is_four() ? TcpEnd{mapped({})} : TcpEnd{});
  return found.ok() && found.value() ? TcpTable::kSockDiag : TcpTable::kProc;
}

// ---- /proc/net/tcp ----

struct Row {
  TcpEnd local, remote;
  Entry entry;
};

/// An address there is its words in the order of this machine, in hexadecimal digits.
bool read_address(const char* digits, in6_addr& address) {
  const size_t count = std::strlen(digits) / 8;
  if (count != 1 && count != 4) return false;
  std::array<uint32_t, 4> words{};
  for (size_t i = 0; i < count; ++i)
    if (std::sscanf(digits + 8 * i, "%8x", &words[i]) != 1) return false;
  if (count == 1)
    address = mapped({words[0]});
  else
    std::memcpy(&address, words.data(), sizeof address);
  return true;
}

std::optional<Row> read_row(const std::string& line) {
  Row row;
  char local[33], remote[33];
  unsigned local_port = 0, remote_port = 0, state = 0, user = 0;
  unsigned long inode = 0;
  const int read =
      std::sscanf(line.c_str(), " %*d: %32[0-9A-F]:%4X %32[0-9A-F]:%4X %2X %*s %*s %*s %u %*u %lu",
                  local, &local_port, remote, &remote_port, &state, &user, &inode);
  if (read != 7 || !read_address(local, row.local.address) ||
      !read_address(remote, row.remote.address))
    return std::nullopt;
  row.local.port = htons(static_cast<uint16_t>(local_port));
  row.remote.port = htons(static_cast<uint16_t>(remote_port));
  row.entry = {state, user, inode};
  return row;
}

/// The row that fits best, by `fit`: 0 if it does not.
template <typename Fit>
Found read_table(const Fit& fit) {
  std::optional<Entry> found;
  int best = 0;
  bool is_there = false;
  for (const char* path : {"/proc/net/tcp", "/proc/net/tcp6"}) {
    std::ifstream table(path);
    is_there = is_there || table.is_open();
    for (std::string line; std::getline(table, line);) {
      const std::optional<Row> row = read_row(line);
      const int fits = row ? fit(*row) : 0;
      if (fits <= best) continue;
      best = fits;
      found = row->entry;
    }
  }
  if (!is_there) return no_answer("neither by sock_diag nor in /proc/net/tcp");
  return found;
}

/// As the kernel does: an address of its own goes before a wildcard, and that of the same family
/// before `::`, which takes IPv4 too.
int fit_of_listener(const Row& row, const TcpEnd& at) {
  if (row.entry.state != TCP_LISTEN || row.local.port != at.port) return 0;
  if (std::memcmp(&row.local.address, &at.address, sizeof at.address) == 0) return 3;
  if (!row.local.is_wildcard()) return 0;
  if (row.local.is_four() == at.is_four()) return 2;
  return row.local.is_four() ? 0 : 1;
}

std::optional<uid_t> user_of(const std::optional<Entry>& entry, bool listens) {
  const bool is_it = entry && entry->inode != 0 && (entry->state == TCP_LISTEN) == listens;
  return is_it ? std::optional(entry->user) : std::nullopt;
}

}  // namespace

std::optional<TcpEnd> TcpEnd::of(const void* socket_address, size_t size_bytes) {
  sa_family_t family = AF_UNSPEC;
  if (size_bytes < sizeof(sockaddr_in)) return std::nullopt;
  std::memcpy(&family, socket_address, sizeof family);
  if (family == AF_INET) {
    sockaddr_in four{};
    std::memcpy(&four, socket_address, sizeof four);
    return TcpEnd{mapped(four.sin_addr), four.sin_port};
  }
  if (family != AF_INET6 || size_bytes < sizeof(sockaddr_in6)) return std::nullopt;
  sockaddr_in6 six{};
  std::memcpy(&six, socket_address, sizeof six);
  return TcpEnd{six.sin6_addr, six.sin6_port, six.sin6_scope_id};
}

std::optional<TcpEnd> TcpEnd::own_of(int socket) { return end_of(socket, getsockname); }

std::optional<TcpEnd> TcpEnd::peer_of(int socket) { return end_of(socket, getpeername); }

bool TcpEnd::is_wildcard() const {
  const in6_addr any = is_four() ? mapped({}) : in6_addr{};
  return std::memcmp(&address, &any, sizeof any) == 0;
}

/// Sends nothing: the kernel answers from where it would send, which is the same address if it is
/// one of its own. (A socket may also be bound to addresses of others, where ip_nonlocal_bind is
/// set.)
Result<bool> TcpEnd::is_here() const {
  const bool is_loopback =
      is_four() ? address.s6_addr[12] == 127 : IN6_IS_ADDR_LOOPBACK(&address) != 0;
  if (is_loopback || is_wildcard()) return true;
  const File asking(socket(is_four() ? AF_INET : AF_INET6, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  if (!asking.is_open() && errno != EAFNOSUPPORT)
    return Status::error(std::string("there is no socket: ") + std::strerror(errno));
  TcpEnd there = *this;
  if (there.port == 0) there.port = htons(1);
  socklen_t size_bytes = 0;
  const sockaddr_storage name = socket_address(there, size_bytes);
  if (connect(asking.get(), reinterpret_cast<const sockaddr*>(&name), size_bytes) != 0)
    return false;
  const auto from = own_of(asking.get());
  return from && std::memcmp(&from->address, &address, sizeof address) == 0;
}

std::string TcpEnd::text() const {
  std::array<char, INET6_ADDRSTRLEN> number{};
  if (is_four())
    inet_ntop(AF_INET, &address.s6_addr[12], number.data(), number.size());
  else
    inet_ntop(AF_INET6, &address, number.data(), number.size());
  const std::string host = is_four() ? number.data() : "[" + std::string(number.data()) + "]";
  return host + ":" + std::to_string(ntohs(port));
}

int TcpEnd::order(const TcpEnd& other) const {
  const int addresses = std::memcmp(&address, &other.address, sizeof address);
  return addresses != 0 ? addresses : int{port} - int{other.port};
}

TcpTable tcp_table() {
  static const TcpTable table = find_table();
  return table;
}

Result<std::optional<uid_t>> listening_user(const TcpEnd& at, TcpTable table) {
  const TcpEnd nowhere{at.is_four() ? mapped({}) : in6_addr{}};
  BRAID_LET(found, table == TcpTable::kSockDiag
                       ? ask_kernel(at, nowhere)
                       : read_table([&](const Row& row) { return fit_of_listener(row, at); }));
  return user_of(found, true);
}

Result<std::optional<uid_t>> connected_user(const TcpEnd& its, const TcpEnd& other,
                                            TcpTable table) {
  BRAID_LET(found,
            table == TcpTable::kSockDiag ? ask_kernel(its, other) : read_table([&](const Row& row) {
              const bool is_it = row.local == its && row.remote == other;
              return is_it && row.entry.state != TCP_LISTEN ? 1 : 0;
            }));
  return user_of(found, false);
}

}  // namespace braid
