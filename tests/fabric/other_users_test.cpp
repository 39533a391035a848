// shm between processes of two users, of whom none is root.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <filesystem>
#include <functional>
#include <string>

#include "fabric/ofi/domain.h"
#include "fabric/ofi/quirks.h"

namespace braid::fabric::ofi {
namespace {

constexpr uid_t kOneUser = 65534, kOtherUser = 65533;

/// A process of that user. `body` returns what it tells.
class User {
 public:
  User(uid_t user, const std::function<std::string()>& body) {
    std::array<int, 2> ends{};
    if (pipe(ends.data()) != 0) return;
    process_ = fork();
    if (process_ == 0) {
      if (setuid(user) != 0) _exit(1);
      prctl(PR_SET_PDEATHSIG, SIGKILL);  // only now: setuid clears it
      tell(ends[1], body);
      for (;;) pause();
    }
    close(ends[1]);
    std::array<char, 1024> room{};
    const ssize_t size_bytes = read(ends[0], room.data(), room.size());
    if (size_bytes > 0) told.assign(room.data(), static_cast<size_t>(size_bytes));
    close(ends[0]);
  }
  ~User() {
    if (process_ <= 0) return;
    kill(process_, SIGKILL);
    waitpid(process_, nullptr, 0);
    remove_files();
  }
  User(const User&) = delete;
  User& operator=(const User&) = delete;

  std::string told;  ///< empty: it has ended before
 private:
  static void tell(int descriptor, const std::function<std::string()>& body) {
    try {
      const std::string text = body();
      if (write(descriptor, text.data(), text.size()) < 0) _exit(1);
    } catch (...) {
      _exit(1);
    }
    close(descriptor);
  }
  /// What a killed process leaves in /dev/shm is removed by processes of its user alone.
  void remove_files() const {
    std::error_code ignored;
    for (const auto& file : std::filesystem::directory_iterator("/dev/shm", ignored))
      if (file.path().filename().string().find(std::to_string(process_) + ":") != std::string::npos)
        std::filesystem::remove(file.path(), ignored);
  }

  pid_t process_ = -1;
};

TEST(OtherUsersTest, AnEndpointOfAnotherUserIsRefusedWithTheCause) {
  if (geteuid() != 0) GTEST_SKIP() << "only root can be two other users";
  static std::unique_ptr<Domain> domain;
  const User owner(kOneUser, [] {
    domain = open_domain(shm_quirks(), "").value();
    return std::string(reinterpret_cast<const char*>(domain->address().data()),
                       domain->address().size());
  });
  ASSERT_FALSE(owner.told.empty());
  const auto connecting = [&] {
    domain = open_domain(shm_quirks(), "").value();
    const auto* address = reinterpret_cast<const std::byte*>(owner.told.data());
    const Result<uint32_t> peer = domain->connect({address, owner.told.size()});
    return peer.ok() ? "connected" : peer.status().message();
  };
  EXPECT_EQ(User(kOneUser, connecting).told, "connected");
  EXPECT_EQ(User(kOtherUser, connecting).told,
            "shm: the peer is another user's process. Run both as one user, or use another "
            "provider of libfabric");
}

}  // namespace
}  // namespace braid::fabric::ofi
