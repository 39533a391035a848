// Processes of several versions compare these: they are FNV-1a's, for ever.
#include "base/fnv.h"

#include <gtest/gtest.h>

namespace braid {
namespace {

TEST(Fnv, IsWhatItsAuthorsPublished) {
  EXPECT_EQ(fnv(""), 0xcbf29ce484222325);
  EXPECT_EQ(fnv("a"), 0xaf63dc4c8601ec8c);
  EXPECT_EQ(fnv("foobar"), 0x85944171f73967e8);
}

TEST(Fnv, BytesHaveNoSign) {
  EXPECT_EQ(fnv("\xff"), fnv_step(kFnvStart, 0xff));
  EXPECT_NE(fnv({"a\0", 2}), fnv("a"));
}

}  // namespace
}  // namespace braid
