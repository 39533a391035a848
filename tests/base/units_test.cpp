#include "base/units.h"

#include <gtest/gtest.h>

namespace braid {
namespace {

TEST(ParseSize, ReadsPlainAndSuffixedSizes) {
  EXPECT_EQ(parse_size("0").value(), 0u);
  EXPECT_EQ(parse_size("4097").value(), 4097u);
  EXPECT_EQ(parse_size("64K").value(), 64u << 10);
  EXPECT_EQ(parse_size("1MiB").value(), 1u << 20);
  EXPECT_EQ(parse_size("2gb").status().ok(), false);
  EXPECT_EQ(parse_size("8GB").value(), uint64_t{8} << 30);
}

TEST(ParseSize, NamesTheTextItCannotRead) {
  for (const char* text : {"", "M", "-1", "1X", "1.5M", "64KK", "99999999999T"}) {
    const auto size = parse_size(text);
    ASSERT_FALSE(size.ok()) << text;
    EXPECT_NE(size.status().message().find("'" + std::string(text) + "'"), std::string::npos);
  }
}

TEST(ParseSizeList, ReadsAListAndRefusesEmptyItems) {
  EXPECT_EQ(parse_size_list("1M,2K,3").value(), (std::vector<uint64_t>{1 << 20, 2 << 10, 3}));
  EXPECT_FALSE(parse_size_list("1M,,2M").ok());
  EXPECT_FALSE(parse_size_list("1M,").ok());
}

TEST(FormatSize, IsReadBackExactly) {
  for (uint64_t size :
       {uint64_t{1}, uint64_t{1024}, uint64_t{1500}, uint64_t{1} << 30, uint64_t{3} << 40})
    EXPECT_EQ(parse_size(format_size(size)).value(), size);
  EXPECT_EQ(format_size(1 << 20), "1M");
}

}  // namespace
}  // namespace braid
