// A seal is HMAC-SHA256 as everybody computes it: peers may have another library, or another
// version of braid.
#include "fabric/seal.h"

#include <gtest/gtest.h>

#include <iomanip>
#include <sstream>
#include <string>
#include <string_view>

namespace braid::fabric {
namespace {

std::span<const std::byte> bytes_of(std::string_view text) {
  return {reinterpret_cast<const std::byte*>(text.data()), text.size()};
}

std::string hex(const Seal& seal) {
  std::ostringstream out;
  for (const std::byte byte : seal)
    out << std::hex << std::setw(2) << std::setfill('0') << static_cast<int>(byte);
  return out.str();
}

std::string sealed(const std::string& key, std::string_view text) {
  return hex(Secret::of(bytes_of(key)).value().seal(bytes_of(text)));
}

TEST(SealTest, IsThatOfRfc4231) {
  EXPECT_EQ(sealed(std::string(20, '\x0b'), "Hi There"), "b0344c61d8db38535ca8afceaf0bf12b");
  EXPECT_EQ(sealed(std::string(20, '\xaa'), std::string(50, '\xdd')),
            "773ea91e36800e46854db8ebd09181a7");
  EXPECT_EQ(
      sealed(std::string(131, '\xaa'), "Test Using Larger Than Block-Size Key - Hash Key First"),
      "60e431591ee0b67f0d8a26aacbf5b77f");
}

TEST(SealTest, WithoutASecretTheKeyIsEmpty) {
  EXPECT_EQ(hex(Secret().seal({})), "b613679a0814d9ec772f95d778c35fc5");
}

TEST(SealTest, OneThatIsSealedTwiceHasOneSeal) {
  const Secret secret = Secret::of(bytes_of("sixteen bytes or more")).value();
  const Seal first = secret.seal(bytes_of("some words"));
  EXPECT_EQ(secret.seal(bytes_of("some words")), first);
  EXPECT_TRUE(secret.is_sealed(bytes_of("some words"), first));
  EXPECT_FALSE(secret.is_sealed(bytes_of("some word"), first));
  EXPECT_FALSE(secret.is_sealed(bytes_of("some words"), std::span(first).first(15)));
}

}  // namespace
}  // namespace braid::fabric
