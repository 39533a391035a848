#include "host/addresses.h"

#include <arpa/inet.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "base/try.h"
#include "host/file.h"

namespace braid {

bool is_number(const std::string& host) {
  in_addr four{};
  in6_addr six{};
  return inet_pton(AF_INET, host.c_str(), &four) == 1 ||
         inet_pton(AF_INET6, host.c_str(), &six) == 1;
}

bool is_loopback(const std::string& host) {
  in_addr four{};
  if (inet_pton(AF_INET, host.c_str(), &four) == 1) return ntohl(four.s_addr) >> 24 == 127;
  in6_addr six{};
  if (inet_pton(AF_INET6, host.c_str(), &six) == 1) return IN6_IS_ADDR_LOOPBACK(&six);
  return host == "localhost";
}

Result<AddressList> look_up_host(const std::string& host, uint16_t port, AddressUse use) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_NUMERICSERV | (use == AddressUse::kListen ? AI_PASSIVE : 0);
  addrinfo* list = nullptr;
  const int wrong = getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &list);
  if (wrong != 0)
    return Status::error("the host '" + host + "' is not known: " + gai_strerror(wrong));
  return AddressList(list);
}

std::string number_of(const addrinfo& address) {
  char number[NI_MAXHOST];
  const int wrong = getnameinfo(address.ai_addr, address.ai_addrlen, number, sizeof number, nullptr,
                                0, NI_NUMERICHOST);
  return wrong == 0 ? number : "";
}

Result<std::vector<std::string>> addresses_of(const std::string& host) {
  BRAID_LET(addresses, look_up_host(host, 0, AddressUse::kListen));
  std::vector<std::string> numbers;
  for (const addrinfo* each = addresses.get(); each != nullptr; each = each->ai_next)
    if (std::string number = number_of(*each); !number.empty())
      numbers.push_back(std::move(number));
  if (numbers.empty()) return Status::error("the host '" + host + "' has no address");
  return numbers;
}

Result<bool> is_of_this_host(const std::string& address) {
  const Result<AddressList> found = look_up_host(address, 0, AddressUse::kListen);
  if (!found.ok()) return false;
  const addrinfo& at = *found.value();
  const File socket(::socket(at.ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const int error = errno;
  if (!socket.is_open() && (error == EMFILE || error == ENFILE))
    return Status::error(std::string("there is no socket: ") + std::strerror(error),
                         error == EMFILE ? "Let the process open more files: ulimit -n"
                                         : "Let the host open more files: sysctl fs.file-max");
  return socket.is_open() && bind(socket.get(), at.ai_addr, at.ai_addrlen) == 0;
}

}  // namespace braid
