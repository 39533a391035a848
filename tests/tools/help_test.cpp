// --help shows the default of each option that has one.
#include <gtest/gtest.h>

#include "tests/support/child.h"

namespace braid::test {
namespace {

std::string help_of(const std::vector<std::string>& command) {
  std::vector<std::string> words{BRAID_COMMAND};
  words.insert(words.end(), command.begin(), command.end());
  words.emplace_back("--help");
  const ChildResult child = run_child(words);
  EXPECT_EQ(child.exit_code, 0) << child.errors;
  return child.output;
}

void expect(const std::string& help, const std::string& part) {
  EXPECT_NE(help.find(part), std::string::npos) << part << " in: " << help;
}

TEST(Help, DefaultsAreShownOnce) {
  const std::string serve = help_of({"serve"});
  expect(serve, "0: files alone (default: 1G)");
  expect(serve, "until it is interrupted (default: 0)");
  const std::string tebench = help_of({"tebench"});
  expect(tebench, "bytes of a request (default: 4K)");
  expect(tebench, "seconds of each row (default: 5)");
  expect(tebench, "or incast (default: sweep)");
  EXPECT_EQ(tebench.find("=sweep"), std::string::npos) << tebench;
  expect(help_of({"rails"}), "that is explained (default: 1M)");
  expect(help_of({"compare"}), "runs of each side (default: 3)");
  expect(help_of({"fabric", "doctor"}), "(default: 127.0.0.1)");
}

TEST(Help, WhereAnEngineLooksByDefaultIsShown) {
  for (const char* command : {"serve", "rails", "tebench"}) {
    const std::string help = help_of({command});
    expect(help, "(default: $BRAID_TRANSFER_STORE)");
    expect(help, "(default: $BRAID_FABRIC_SECRET_FILE)");
    expect(help, "(default: by --nics, or that of --listen, or 127.0.0.1)");
  }
}

TEST(Help, WhatHasNoDefaultShowsNone) {
  const std::string serve = help_of({"serve"});
  expect(serve, "without it, the host's\n");
  expect(serve, "a folder whose files peers may read\n");
  EXPECT_EQ(help_of({"waits"}).find("default"), std::string::npos) << "the process is required";
}

}  // namespace
}  // namespace braid::test
