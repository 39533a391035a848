#include "braid/status.h"

#include <gtest/gtest.h>

#include <memory>
#include <vector>

namespace braid {
namespace {

/// Counts those that are alive.
class Counted {
 public:
  Counted() { ++alive_; }
  Counted(const Counted& /*other*/) { ++alive_; }
  Counted& operator=(const Counted&) = default;
  ~Counted() { --alive_; }
  static int alive() { return alive_; }

 private:
  static inline int alive_ = 0;
};

Result<std::vector<Counted>> three() { return std::vector<Counted>(3); }

TEST(Result, ALoopOverTheValueOfACallHasItsElements) {
  int seen = 0;
  for ([[maybe_unused]] const Counted& one : three().value()) {
    EXPECT_EQ(Counted::alive(), 3);
    ++seen;
  }
  EXPECT_EQ(seen, 3);
  EXPECT_EQ(Counted::alive(), 0);
}

TEST(Result, GivesAwayWhatCannotBeCopied) {
  Result<std::unique_ptr<int>> made = std::make_unique<int>(7);
  const std::unique_ptr<int> taken = std::move(made).value();
  EXPECT_EQ(*taken, 7);
}

TEST(Result, HasNoValueButAnError) {
  Result<int> failed = Status::error("no");
  EXPECT_THROW((void)failed.value(), std::bad_variant_access);
  EXPECT_THROW((void)std::move(failed).value(), std::bad_variant_access);
}

}  // namespace
}  // namespace braid
