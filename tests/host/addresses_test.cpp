// Which addresses lead to this host alone.
#include "host/addresses.h"

#include <gtest/gtest.h>

namespace braid {
namespace {

// What looks like one and is a name may be another host's: it decides whether a secret is needed.
TEST(Addresses, LoopbackIsAnAddressAndNoNameThatBeginsLikeOne) {
  for (const char* here : {"127.0.0.1", "127.8.9.10", "::1", "0:0:0:0:0:0:0:1", "localhost"})
    EXPECT_TRUE(is_loopback(here)) << here;
  for (const char* anywhere : {"127.example.org", "10.0.0.7", "fd00::7", "1270.0.0.1", ""})
    EXPECT_FALSE(is_loopback(anywhere)) << anywhere;
}

}  // namespace
}  // namespace braid
