#include "fabric/library/endpoint_count.h"

#include <sys/resource.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <string>
#include <string_view>

#include "base/try.h"
#include "fabric/endpoints.h"
#include "host/usable_cpus.h"

namespace braid::fabric {
namespace {

constexpr size_t kUsualMax = 4;
constexpr size_t kThreadsMax = 16;
constexpr size_t kCpusOfThread = 4;          // the program keeps the others
constexpr double kThreadGbps = 3;            // what one thread copies over TCP
constexpr size_t kDescriptorsOfDoor = 16;    // a listener, a connection, and what they wait with
constexpr size_t kDoorsMax = 16;             // each takes 12 to 14 MB at each endpoint
constexpr size_t kDescriptorsOfProgram = 4;  // the program keeps three of four

}  // namespace

EndpointRoom endpoint_room(size_t addresses) {
  EndpointRoom room;
  room.addresses = addresses;
  room.cpus = static_cast<size_t>(usable_cpus().count);
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) == 0) room.descriptors = limit.rlim_cur;
  return room;
}

size_t usual_endpoints(std::optional<double> nic_gbps, const EndpointRoom& room) {
  const double wanted = nic_gbps ? std::ceil(*nic_gbps / kThreadGbps) : kUsualMax;
  const size_t all = std::min(room.cpus / kCpusOfThread, kThreadsMax);
  const auto each = static_cast<double>(all / std::max<size_t>(room.addresses, 1));
  return static_cast<size_t>(std::clamp<double>(std::min(wanted, each), 1, kUsualMax));
}

std::optional<double> link_gbps(const std::string& address,
                                const std::vector<topology::Nic>& nics) {
  for (const topology::Nic& nic : nics)
    for (const std::string& each : nic.addresses)
      if (each == address && nic.link_gbps.value > 0) return nic.link_gbps.value;
  return std::nullopt;
}

Result<std::optional<size_t>> asked_endpoints() {
  const char* const asked = std::getenv(kEndpointsVariable);
  if (asked == nullptr || *asked == '\0') return std::optional<size_t>();
  const std::string_view text = asked;
  size_t count = 0;
  const auto [end, error] = std::from_chars(text.begin(), text.end(), count);
  if (error != std::errc() || end != text.end() || count < 1 || count > kEndpointsMax)
    return Status::error(
        std::string(kEndpointsVariable) + "='" + asked + "': this is no number of endpoints",
        "It is a number from 1 to " + std::to_string(kEndpointsMax));
  return std::optional(count);
}

size_t EndpointCount::at(const std::string& address) const {
  const size_t wanted = asked.value_or(usual_endpoints(link_gbps(address, nics), room));
  return doors_at_all_endpoints(room, wanted) > 0 ? wanted : 1;
}

Result<EndpointCount> endpoint_count(size_t addresses, const std::vector<topology::Nic>& nics) {
  BRAID_LET(asked, asked_endpoints());
  return EndpointCount{asked, endpoint_room(addresses), nics};
}

size_t doors_at_all_endpoints(const EndpointRoom& room, size_t endpoints) {
  if (endpoints < 2) return 0;
  const size_t all = room.descriptors / kDescriptorsOfProgram / kDescriptorsOfDoor;
  return std::min(all / (endpoints - 1) / std::max<size_t>(room.addresses, 1), kDoorsMax);
}

}  // namespace braid::fabric
