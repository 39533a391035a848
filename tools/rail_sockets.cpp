#include "tools/rail_sockets.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <filesystem>
#include <functional>
#include <vector>

namespace braid::tools {
namespace {

std::vector<int> open_files() {
  std::vector<int> files;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd"))
    files.push_back(std::stoi(entry.path().filename().string()));
  return files;
}

bool listens(int file) {
  int answer = 0;
  socklen_t size_bytes = sizeof answer;
  return getsockopt(file, SOL_SOCKET, SO_ACCEPTCONN, &answer, &size_bytes) == 0 && answer != 0;
}

using NameOf = int (*)(int, sockaddr*, socklen_t*);

bool has_address(int file, NameOf name_of, in_addr wanted) {
  sockaddr_in name{};
  socklen_t size_bytes = sizeof name;
  return name_of(file, reinterpret_cast<sockaddr*>(&name), &size_bytes) == 0 &&
         name.sin_family == AF_INET && name.sin_addr.s_addr == wanted.s_addr;
}

}  // namespace

int break_connections(const std::string& address) {
  in_addr wanted{};
  inet_pton(AF_INET, address.c_str(), &wanted);
  int broken = 0;
  for (const int file : open_files()) {
    const bool is_of_rail =
        has_address(file, getpeername, wanted) || has_address(file, getsockname, wanted);
    if (is_of_rail && !listens(file)) broken += shutdown(file, SHUT_RDWR) == 0;
  }
  return broken;
}

int kill_rail(const std::string& address) {
  in_addr wanted{};
  inet_pton(AF_INET, address.c_str(), &wanted);
  // The number stays taken: libfabric closes it at its end. A socket that only stopped listening
  // would wake its thread for ever.
  const int nothing = open("/dev/null", O_RDWR | O_CLOEXEC);
  for (const int file : open_files())
    if (listens(file) && has_address(file, getsockname, wanted)) dup2(nothing, file);
  close(nothing);
  return break_connections(address);
}

}  // namespace braid::tools
