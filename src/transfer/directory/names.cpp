#include "transfer/directory/names.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <charconv>
#include <cstdlib>
#include <cstring>

#include "base/try.h"
#include "transfer/description.h"

namespace braid::transfer {

Status check_bare_name(std::string_view name) {
  constexpr size_t kLettersMax = 64;
  const bool is_good =
      !name.empty() && name.size() <= kLettersMax && name.front() != '.' &&
      std::all_of(name.begin(), name.end(), [](unsigned char letter) {
        return std::isalnum(letter) != 0 ||
               std::string_view("._-").find(static_cast<char>(letter)) != std::string_view::npos;
      });
  if (is_good) return {};
  return Status::error("'" + std::string(name) + "' is no name",
                       "Names have at most 64 letters, digits, '.', '_' and '-'");
}

Result<HostAndPort> parse_host_and_port(std::string_view text) {
  const std::string quoted = "'" + std::string(text) + "'";
  const size_t colon = text.rfind(':');
  if (colon == std::string_view::npos)
    return Status::error(quoted + " has no port", "Write host:port");
  HostAndPort at;
  std::string_view host = text.substr(0, colon);
  if (host.starts_with('[') && host.ends_with(']')) host = host.substr(1, host.size() - 2);
  if (host.empty()) return Status::error(quoted + " has no host", "Write host:port");
  at.host = host;
  const std::string_view port = text.substr(colon + 1);
  const auto read = std::from_chars(port.data(), port.data() + port.size(), at.port);
  if (read.ec != std::errc() || read.ptr != port.data() + port.size())
    return Status::error(quoted + " has no port between 0 and 65535");
  return at;
}

Result<Name> parse_name(std::string_view text) {
  Name name;
  name.text = text;
  if (!text.starts_with(kScheme)) {
    BRAID_TRY(check_bare_name(text));
    return name;
  }
  text.remove_prefix(kScheme.size());
  const size_t slash = std::min(text.find('/'), text.size());
  BRAID_LET(at, parse_host_and_port(text.substr(0, slash)));
  if (at.port == 0) return Status::error("'" + name.text + "' names port 0");
  name.at = at;
  const std::string_view digits = text.substr(std::min(slash + 1, text.size()));
  if (digits.empty()) return name;
  BRAID_LET(incarnation, incarnation_of_hex(digits));
  if (incarnation == Incarnation{})
    return Status::error("'" + name.text + "' has an incarnation of zeros, which no engine has",
                         "Leave it out to name whoever listens there");
  name.incarnation = incarnation;
  return name;
}

std::string write_name(const HostAndPort& at, const Incarnation& incarnation) {
  const bool is_ipv6 = at.host.find(':') != std::string::npos;
  return std::string(kScheme) + (is_ipv6 ? "[" + at.host + "]" : at.host) + ":" +
         std::to_string(at.port) + "/" + to_hex(incarnation);
}

Result<std::string> socket_folder() {
  const char* own = std::getenv("BRAID_RUNTIME_DIR");
  const char* session = std::getenv("XDG_RUNTIME_DIR");
  std::string folder = "/tmp/braid-" + std::to_string(geteuid());
  if (session != nullptr && *session != '\0') folder = std::string(session) + "/braid";
  if (own != nullptr && *own != '\0') folder = own;
  if (mkdir(folder.c_str(), 0700) != 0 && errno != EEXIST)
    return Status::error("cannot make the folder " + folder + ": " + std::strerror(errno),
                         "Let BRAID_RUNTIME_DIR name one");
  struct stat about {};
  const bool is_ours = lstat(folder.c_str(), &about) == 0 && S_ISDIR(about.st_mode) &&
                       about.st_uid == geteuid() && (about.st_mode & 0077) == 0;
  if (!is_ours)
    return Status::error("the folder " + folder + " is open to others, or somebody else's",
                         "chmod 700 it, or let BRAID_RUNTIME_DIR name another");
  return folder;
}

}  // namespace braid::transfer
