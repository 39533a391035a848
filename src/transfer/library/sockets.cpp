#include "transfer/library/sockets.h"

#include <sched.h>
#include <sys/resource.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <string>
#include <string_view>

namespace braid::transfer {
namespace {

constexpr size_t kAskedMax = 16;
constexpr size_t kUsualMax = 4;
constexpr size_t kThreadsMax = 16;
constexpr size_t kCpusOfThread = 4;  // the program keeps the others
constexpr double kThreadGbps = 3;    // what one thread copies into and out of a socket
// An engine with hundreds of peers keeps room for the program's own files.
constexpr size_t kDescriptorsOfSocket = 8192;

}  // namespace

SocketRoom socket_room(size_t addresses) {
  SocketRoom room;
  room.addresses = addresses;
  cpu_set_t cpus;
  if (sched_getaffinity(0, sizeof cpus, &cpus) == 0)
    room.cpus = static_cast<size_t>(CPU_COUNT(&cpus));
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) == 0) room.descriptors = limit.rlim_cur;
  return room;
}

size_t usual_sockets(std::optional<double> nic_gbps, const SocketRoom& room) {
  const double wanted = nic_gbps ? std::ceil(*nic_gbps / kThreadGbps) : kUsualMax;
  const size_t all =
      std::min({room.cpus / kCpusOfThread, kThreadsMax, room.descriptors / kDescriptorsOfSocket});
  const auto each = static_cast<double>(all / std::max<size_t>(room.addresses, 1));
  return static_cast<size_t>(std::clamp<double>(std::min(wanted, each), 1, kUsualMax));
}

Result<std::optional<size_t>> asked_sockets() {
  const char* const variable = std::getenv(kSocketsVariable);
  if (variable == nullptr || *variable == '\0') return std::optional<size_t>();
  const std::string_view text = variable;
  size_t count = 0;
  const auto [end, error] = std::from_chars(text.begin(), text.end(), count);
  if (error != std::errc() || end != text.end() || count < 1 || count > kAskedMax)
    return Status::error(
        std::string(kSocketsVariable) + "='" + variable + "': this is no number of connections",
        "It is a number from 1 to " + std::to_string(kAskedMax));
  return std::optional(count);
}

}  // namespace braid::transfer
