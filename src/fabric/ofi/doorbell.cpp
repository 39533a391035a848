#include "fabric/ofi/doorbell.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <string_view>

#include "host/file.h"

namespace braid::fabric::ofi {
namespace {

constexpr std::string_view kFolder = "/dev/shm/";
constexpr std::string_view kPrefix = "braid-doorbell-";
constexpr std::string_view kScheme = "fi_shm://";

/// The path is empty if it is too long for a socket.
sockaddr_un socket_address(const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.size() < sizeof address.sun_path)
    std::memcpy(address.sun_path, path.c_str(), path.size());
  return address;
}

sockaddr_un doorbell_of(Bytes endpoint) {
  const std::string file = file_of(endpoint);
  return socket_address(file.empty() ? std::string()
                                     : std::string(kFolder).append(kPrefix).append(file));
}

int open_socket() {
  const int socket = ::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (socket >= 0) fchmod(socket, S_IRUSR | S_IWUSR);  // the mode of its file, once bound
  return socket;
}

/// The socket for all rings of this process.
int ringing_socket() {
  static const int socket = open_socket();
  return socket;
}

Status another_users() {
  return Status::error("shm: the peer is another user's process",
                       "Run both as one user, or use another provider of libfabric");
}

bool is_left(const sockaddr_un& doorbell) {
  const int socket = open_socket();
  const bool is_refused =
      connect(socket, reinterpret_cast<const sockaddr*>(&doorbell), sizeof doorbell) != 0 &&
      errno == ECONNREFUSED;
  if (socket >= 0) close(socket);
  return is_refused;
}

}  // namespace

std::string file_of(Bytes endpoint) {
  std::string_view name(reinterpret_cast<const char*>(endpoint.data()), endpoint.size());
  name = name.substr(0, name.find('\0'));
  if (!name.starts_with(kScheme)) return {};
  name.remove_prefix(kScheme.size());
  return name.find('/') == name.npos ? std::string(name) : std::string();
}

std::string endpoint_of(std::string_view file) { return std::string(kScheme).append(file); }

Status check_file(Bytes endpoint, Admits admits) {
  const std::string file = file_of(endpoint);
  if (file.empty()) return Status::error("this is no address of shm");
  const int descriptor = open(std::string(kFolder).append(file).c_str(),
                              O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NOCTTY | O_NONBLOCK);
  if (descriptor >= 0) {
    const File opened(descriptor);
    struct stat about {};
    const bool is_ours = fstat(descriptor, &about) == 0 && is_our_user(about.st_uid);
    return is_ours || admits == Admits::kAnybody ? Status() : another_users();
  }
  if (errno == EACCES || errno == EPERM) return another_users();
  if (errno == ENOENT)
    return Status::error("shm: the peer's engine is closed, or its process has ended",
                         "Connect to an engine that runs");
  const std::string why = std::strerror(errno);
  return Status::error("shm: the peer's file cannot be opened: " + why,
                       "Let the process have more file descriptors (ulimit -n)");
}

Doorbell::~Doorbell() {
  for (const std::string& path : paths_) unlink(path.c_str());
  if (socket_ >= 0) close(socket_);
}

bool Doorbell::add(Bytes endpoint) {
  const sockaddr_un address = doorbell_of(endpoint);
  const std::string path = address.sun_path;
  if (path.empty()) return false;
  if (is_left(address)) unlink(path.c_str());  // by a process that had the same number
  if (paths_.empty()) {
    const int socket = open_socket();
    if (bind(socket, reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) {
      if (socket >= 0) close(socket);
      return false;
    }
    if (socket_ >= 0) close(socket_);
    socket_ = socket;
  } else if (link(paths_.front().c_str(), path.c_str()) != 0) {
    return false;
  }
  paths_.push_back(path);
  return true;
}

void Doorbell::remove(Bytes endpoint) {
  const std::string path = doorbell_of(endpoint).sun_path;
  if (std::erase(paths_, path) > 0) unlink(path.c_str());
}

bool Doorbell::drain() {
  char byte = 0;
  bool was_rung = false;
  while (recv(socket_, &byte, sizeof byte, 0) >= 0) was_rung = true;
  return was_rung;
}

PeerDoorbell::PeerDoorbell(Bytes endpoint) : path_(doorbell_of(endpoint)) {}

void PeerDoorbell::ring_now(uint64_t now_ns) {
  due_ns_ = now_ns + pause_ns_;
  pause_ns_ = std::min(2 * pause_ns_, kLongestPauseNs);
  if (path_.sun_path[0] == 0) return;
  // Failures are no errors: a peer without a doorbell polls by itself, and a peer that has not
  // taken the last ring needs no other.
  (void)!sendto(ringing_socket(), "", 1, MSG_DONTWAIT | MSG_NOSIGNAL,
                reinterpret_cast<const sockaddr*>(&path_), sizeof path_);
}

void remove_left_files() {
  constexpr time_t kSettledS = 10;  // a new doorbell refuses rings for a moment
  std::error_code failed;
  for (const auto& entry : std::filesystem::directory_iterator(kFolder, failed)) {
    const std::string name = entry.path().filename();
    struct stat made {};
    if (!name.starts_with(kPrefix) || lstat(entry.path().c_str(), &made) != 0) continue;
    const bool is_ours = S_ISSOCK(made.st_mode) && made.st_uid == geteuid();
    const bool is_settled = time(nullptr) - made.st_mtime > kSettledS;
    if (!is_ours || !is_settled || !is_left(socket_address(entry.path()))) continue;
    unlink(std::string(kFolder).append(name.substr(kPrefix.size())).c_str());
    unlink(entry.path().c_str());
  }
}

bool has_live_doorbell(int process) {
  const std::string prefix = std::string(kPrefix) + std::to_string(process) + ":";
  std::error_code failed;
  for (const auto& entry : std::filesystem::directory_iterator(kFolder, failed))
    if (entry.path().filename().string().starts_with(prefix) &&
        !is_left(socket_address(entry.path())))
      return true;
  return false;
}

}  // namespace braid::fabric::ofi
