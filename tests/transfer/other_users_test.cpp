// Engines of two users of one host that were given no secret: neither reads a byte of the other's.
#include <gtest/gtest.h>
#include <unistd.h>

#include <optional>
#include <stdexcept>
#include <string>

#include "braid/transfer.h"
#include "fabric/telling_process.h"

namespace braid::transfer {
namespace {

constexpr std::chrono::seconds kLimit{60};
constexpr uid_t kOneUser = 65534, kOtherUser = 65533;

/// By default settings.
Transfer open_as(uid_t user) {
  unsetenv("XDG_RUNTIME_DIR");
  if (setuid(user) != 0) throw std::runtime_error("it cannot be that user");
  return Transfer::open({}).value();
}

TEST(TransferOtherUsers, OpenNoSegmentOfAnEngine) {
  if (geteuid() != 0) GTEST_SKIP() << "only root can be two other users";
  static std::optional<Transfer> lasting;  // of the owner's process
  const fabric::test::TellingProcess owner([] {
    lasting.emplace(open_as(kOneUser));
    return lasting->name().value();
  });
  ASSERT_FALSE(owner.told().empty());
  const auto opened_by = [&](uid_t user) {
    const fabric::test::TellingProcess process([&] {
      Transfer engine = open_as(user);
      const auto segment = engine.open_segment(owner.told(), kLimit);
      if (segment.ok()) return std::string("opened");
      return std::string(Transfer::cause_name(Transfer::cause_of(segment.status()))) + ": " +
             segment.status().message();
    });
    return process.told();
  };
  EXPECT_EQ(opened_by(kOneUser), "opened");
  const std::string refusal = opened_by(kOtherUser);
  EXPECT_EQ(refusal.find("the owner has another secret: "), 0u) << refusal;
  for (const uid_t user : {kOneUser, kOtherUser})
    unlink(("/dev/shm/braid-secret-" + std::to_string(user)).c_str());
}

}  // namespace
}  // namespace braid::transfer
