// Processes of two users, of whom none is root.
#pragma once

#include <sys/stat.h>
#include <unistd.h>

#include <fstream>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>

namespace braid::fabric::test {

constexpr uid_t kOneUser = 65534, kOtherUser = 65533;

/// From now on this process is the user's.
inline void become(uid_t user) {
  if (setuid(user) != 0) throw std::runtime_error("it cannot be that user");
}

/// The process becomes the user's, and opens an engine until it ends. With a secret it is the same
/// for every user, who has a file of their own with it.
template <typename Engine, typename Options>
Engine& engine_of(uid_t user, Options options, bool has_secret) {
  static std::optional<Engine> engine;
  become(user);
  if (has_secret) {
    options.secret_file = "/tmp/braid-users-test-" + std::to_string(getpid());
    std::ofstream(options.secret_file) << "a secret of more than sixteen bytes";
    chmod(options.secret_file.c_str(), 0600);
  }
  auto opened = Engine::open(options);
  if (has_secret) unlink(options.secret_file.c_str());
  engine.emplace(std::move(opened).value());
  return *engine;
}

}  // namespace braid::fabric::test
