#include "fabric/library/user_secret.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>

#include "base/try.h"
#include "fabric/library/options.h"
#include "host/file.h"
#include "host/random_number.h"

namespace braid::fabric {
namespace {

std::string hex_of_random_number() {
  std::array<char, 17> digits;
  std::snprintf(digits.data(), digits.size(), "%016llx",
                static_cast<unsigned long long>(random_number()));
  return digits.data();
}

Status refuse(const std::string& what) {
  return Status::error(what, std::string("Let ") + kSecretVariable +
                                 " name a file with a secret instead: " + making_of_secret("FILE"));
}

Status cannot_make(const std::string& path) {
  return refuse("the user's secret " + path + " cannot be made: " + std::strerror(errno));
}

/// Of another user who came first, and would know it.
Status check_owner(const std::string& path) {
  struct stat about {};
  if (lstat(path.c_str(), &about) != 0) return cannot_make(path);
  if (!S_ISREG(about.st_mode) || about.st_uid != geteuid())
    return refuse("the user's secret " + path + " is another user's");
  return {};
}

/// The file appears whole, and stays that of whoever was first.
Status make(const std::string& path) {
  const std::string whole = path + "." + hex_of_random_number();
  const File file(open(whole.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
  if (!file.is_open()) return cannot_make(path);
  std::string secret;
  for (int i = 0; i < 4; ++i) secret += hex_of_random_number();
  const bool is_written =
      write(file.get(), secret.data(), secret.size()) == static_cast<ssize_t>(secret.size());
  const bool is_there = is_written && (link(whole.c_str(), path.c_str()) == 0 || errno == EEXIST);
  const Status made = is_there ? Status() : cannot_make(path);
  unlink(whole.c_str());
  return made;
}

}  // namespace

std::string user_secret_path() { return "/dev/shm/braid-secret-" + std::to_string(geteuid()); }

Result<Secret> user_secret(const std::string& path) {
  if (access(path.c_str(), F_OK) != 0) BRAID_TRY(make(path));
  BRAID_TRY(check_owner(path));
  return Secret::of_file(path);
}

}  // namespace braid::fabric
