// What libbraid_preload.so shows the world: the tables' entry points, dlsym, the exits that run no
// handlers, and libbraid.so's functions, which it stands in for; and nothing else.
#include <gtest/gtest.h>

#include <set>
#include <sstream>

#include "lending/cudart_hooks.h"
#include "preload/hooks.h"
#include "tests/support/child.h"

namespace braid::preload {
namespace {

using test::run_child;

std::set<std::string> exports_of(const char* library) {
  const auto listing = run_child({"nm", "-D", "--defined-only", library});
  EXPECT_EQ(listing.exit_code, 0) << listing.errors;
  std::set<std::string> exported;
  std::istringstream lines(listing.output);
  for (std::string address, type, name; lines >> address >> type >> name;) exported.insert(name);
  return exported;
}

std::set<std::string> tables_and_libc() {
  std::set<std::string> names{"dlsym", "_exit", "_Exit"};
  for (const Hook& hook : hooks()) names.insert(hook.symbol);
  names.insert(lending::cudart_hooks().begin(), lending::cudart_hooks().end());
  return names;
}

TEST(Exports, AreTheTablesThreeOfLibcAndTheLibrarys) {
  std::set<std::string> expected = tables_and_libc();
  expected.merge(exports_of(BRAID_LIBRARY));
  EXPECT_EQ(exports_of(BRAID_PRELOAD_LIBRARY), expected);
}

TEST(Exports, TheLibraryNeedsOnlyTheCLibrary) {
  const auto listing = run_child({"readelf", "-dW", BRAID_PRELOAD_LIBRARY});
  ASSERT_EQ(listing.exit_code, 0) << listing.errors;
  std::istringstream lines(listing.output);
  for (std::string line; std::getline(lines, line);) {
    if (line.find("(NEEDED)") == std::string::npos) continue;
    const bool is_libc =
        line.find("[libc.so") != std::string::npos || line.find("[ld-linux") != std::string::npos ||
        line.find("[libdl.so") != std::string::npos || line.find("[libm.so") != std::string::npos;
    EXPECT_TRUE(is_libc) << line;
  }
  EXPECT_NE(listing.output.find("NODELETE"), std::string::npos);
}

}  // namespace
}  // namespace braid::preload
