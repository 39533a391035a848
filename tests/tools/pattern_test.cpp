// What measured copies are verified against: a wrong byte anywhere is seen, and so is the right
// byte in another's place.
#include "tools/pattern.h"

#include <gtest/gtest.h>

#include <vector>

namespace braid::tools {
namespace {

constexpr uint64_t kSeed = 7;

TEST(Pattern, EveryWrongByteIsSeen) {
  for (const uint64_t size : {1u, 7u, 8u, 9u, 64u, 1003u}) {
    std::vector<char> bytes(size);
    fill_pattern(bytes.data(), size, kSeed);
    ASSERT_TRUE(has_pattern(bytes.data(), size, kSeed)) << size;
    for (char& byte : bytes) {
      byte = static_cast<char>(byte ^ 1);
      EXPECT_FALSE(has_pattern(bytes.data(), size, kSeed)) << size;
      byte = static_cast<char>(byte ^ 1);
    }
  }
}

TEST(Pattern, APlaceHasBytesOfItsOwn) {
  std::vector<char> whole(4096);
  fill_pattern(whole.data(), whole.size(), kSeed);
  EXPECT_TRUE(has_pattern(whole.data() + 1024, 1000, kSeed, 1024));
  EXPECT_FALSE(has_pattern(whole.data() + 1024, 1000, kSeed, 1032));
  EXPECT_FALSE(has_pattern(whole.data() + 1024, 1000, kSeed));
  EXPECT_FALSE(has_pattern(whole.data(), whole.size(), kSeed + 1));
}

}  // namespace
}  // namespace braid::tools
