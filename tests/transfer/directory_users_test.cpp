// Questions of another user of this host to an engine without a secret, by a process that does not
// look at users itself.
#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <memory>
#include <string>
#include <thread>

#include "base/clock.h"
#include "fabric/telling_process.h"
#include "fabric/two_users.h"
#include "transfer/directory/server.h"
#include "transfer/some_answer.h"

namespace braid::transfer {
namespace {

constexpr uid_t kStranger = 65533;
constexpr uint64_t kLongNs = 20'000'000'000;

class DirectoryUsersTest : public testing::Test {
 protected:
  void SetUp() override {
    if (geteuid() != 0) GTEST_SKIP() << "only root can be another user";
  }
  void open(Admits admits) {
    server_ = DirectoryServer::open({"127.0.0.1", 0}, "", {},
                                    {{1, 2},
                                     [] { return some_answer().description; },
                                     [](const auto&) { return std::string(); },
                                     admits})
                  .value();
  }
  /// What a process of that user hears.
  std::string answer_to(uid_t user) {
    std::string heard;
    std::thread asking([&] {
      const fabric::test::TellingProcess process([&] {
        fabric::test::become(user);
        const uint64_t end_ns = monotonic_ns() + kLongNs;
        Question question;
        question.nonce = 7;
        const auto socket = connect_to(server_->at(), end_ns);
        const auto answer = ask(socket.value(), encode(question, {}), kFrameBytesMax, end_ns);
        return answer.ok() ? std::string("an answer") : std::string("nothing");
      });
      heard = process.told();
      is_over_ = true;
    });
    while (!is_over_) server_->step(monotonic_ns());
    asking.join();
    is_over_ = false;
    return heard;
  }

  std::unique_ptr<DirectoryServer> server_;
  std::atomic<bool> is_over_ = false;
};

TEST_F(DirectoryUsersTest, AnotherUserGetsNoAnswer) {
  open(Admits::kThisUser);
  EXPECT_EQ(answer_to(kStranger), "nothing");
  EXPECT_EQ(server_->statistics().refused, 1u);
  EXPECT_EQ(answer_to(0), "an answer");
  EXPECT_EQ(server_->statistics().answered, 1u);
}

TEST_F(DirectoryUsersTest, WithASecretTheSealDecides) {
  open(Admits::kAnybody);
  EXPECT_EQ(answer_to(kStranger), "an answer");
}

}  // namespace
}  // namespace braid::transfer
