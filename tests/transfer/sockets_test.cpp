// How many rails an address of sockets gets.
#include <gtest/gtest.h>

#include "transfer/library/open_rails.h"

namespace braid::transfer {
namespace {

TEST(TransferSockets, AnAddressGetsAsManySocketsAsItsNicAndTheCpusTake) {
  constexpr double kGbps10 = 1.25, kGbps50 = 6.25, kGbps400 = 50;
  EXPECT_EQ(rails_at(kGbps10, 64, 1), 1u);
  EXPECT_EQ(rails_at(kGbps50, 64, 1), 3u);
  EXPECT_EQ(rails_at(kGbps400, 64, 1), 4u);
  EXPECT_EQ(rails_at(std::nullopt, 64, 1), 4u);  // loopback
  EXPECT_EQ(rails_at(kGbps400, 8, 1), 2u);
  EXPECT_EQ(rails_at(kGbps400, 2, 1), 1u);
  EXPECT_EQ(rails_at(kGbps400, 0, 0), 1u);    // the number of CPUs is not known
  EXPECT_EQ(rails_at(kGbps400, 192, 8), 2u);  // 16 for all
  EXPECT_EQ(rails_at(kGbps400, 192, 32), 1u);
}

}  // namespace
}  // namespace braid::transfer
