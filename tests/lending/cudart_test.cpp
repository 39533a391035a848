// `braid run --lend` for programs of CUDA's runtime library, which must hear of every GPU and let
// the program hear of its own only. The runtime is a double (clients/cudart_double.cpp) that starts
// as the real one does; its answers without braid are what the program must hear with it.
#include <regex>

#include "tests/lending/lending.h"

namespace braid::test {
namespace {

const std::string kFolder = BRAID_TEST_CLIENTS;
const std::string kClient = kFolder + "/client_cudart";
const std::string kSharedProgram = kFolder + "/client_cudart_shared";
const std::string kStaticProgram = kFolder + "/client_cudart_static";
const std::string kRuntime98 = kFolder + "/cudart_98/libcudart.so.98";
const std::string kRuntime90 = kFolder + "/cudart_90/libcudart.so.90";
const std::string kWith98 = kFolder + "/libclient_cudart_with_98.so";
const std::string kWith90 = kFolder + "/libclient_cudart_with_90.so";
const std::string kWithStatic = kFolder + "/libclient_cudart_with_static.so";
constexpr uint64_t kReportBytes = uint64_t{16} << 20;  // of the one large copy of a report

Words client(const Words& steps) {
  return joined(joined({kClient}, steps), joined({"--"}, pci_addresses()));
}

ChildResult lent(const Words& program, const std::string& devices = "3") {
  return with_braid(program, {"--lend", "all"}, visible(devices));
}

// The program hears what it hears without braid, and its copies go over every link.
void expect_lent(const Words& program, uint64_t copies, const std::string& devices = "3") {
  const ChildResult native = natively(program, visible(devices));
  ASSERT_EQ(native.exit_code, 0) << native.errors;
  const ChildResult child = lent(program, devices);
  EXPECT_EQ(child.output, native.output);
  const auto statistics = only_statistics(child);
  EXPECT_EQ(counted(statistics, "cuMemcpyHtoD_v2", "accelerated"),
            (Counted{copies, copies * kReportBytes}));
  EXPECT_EQ(paths_to(statistics, 0), 8u) << statistics;
}

size_t count_of(const std::string& text, const std::string& part) {
  size_t count = 0;
  for (size_t at = text.find(part); at != text.npos; at = text.find(part, at + 1)) ++count;
  return count;
}

TEST(LendCudart, AProgramLinkedWithTheSharedRuntime) {
  const Words program = joined({kSharedProgram}, pci_addresses());
  const std::string native = natively(program, visible("3")).output;
  EXPECT_EQ(count_of(native, "runtime 98, count 0/0 1\n"), 1u) << native;
  EXPECT_EQ(count_of(native, "first of all: 101/101\n"), 1u) << native;
  expect_lent(program, 1);
  expect_lent(program, 1, "5,2");
}

TEST(LendCudart, FunctionsFoundOnAHandle) { expect_lent(client({"handle=" + kRuntime98}), 1); }

TEST(LendCudart, FunctionsFoundInTheGlobalScope) {
  expect_lent(client({"default=" + kRuntime98}), 1);
}

// As of a Python extension: nothing but its caller leads to this runtime.
TEST(LendCudart, ARuntimeInTheScopeOfALibraryOnly) {
  expect_lent(client({"library=" + kWith98}), 1);
}

TEST(LendCudart, TwoRuntimesAreEachAnsweredByTheirOwn) {
  expect_lent(client({"library=" + kWith98, "library=" + kWith90, "handle=" + kRuntime98,
                      "handle=" + kRuntime90}),
              4);
}

// The runtime is in the scope of neither the program, which the call returns to, nor all.
TEST(LendCudart, ACallThatReturnsToAnotherModule) {
  const ChildResult child = lent(client({"start=" + kRuntime98, "jump=" + kWith98}));
  EXPECT_EQ(child.output, "1 GPUs\n1 GPUs\n") << child.errors;
}

TEST(LendCudart, BesideTheDriverApi) {
  expect_lent(client({"driver", "library=" + kWith98, "driver"}), 1);
  expect_lent(client({"library=" + kWith98, "driver"}), 1);
}

// The truth is for the runtime's start: before its first context, and by then also for one that
// does not check itself, the program's own questions are answered as ever.
TEST(LendCudart, TheTruthIsToldToTheRuntimeOnly) {
  for (const Words& steps : {Words{"start=" + kRuntime98, "driver"},
                             Words{"start=" + kRuntime90, "context", "driver"}}) {
    const ChildResult child = lent(client(steps));
    EXPECT_EQ(child.output, "1 GPUs\ndriver: 1 GPUs\n") << child.errors;
  }
}

void expect_declined(const Words& program, const std::string& holder) {
  const ChildResult native = natively(program, visible("3"));
  ASSERT_EQ(native.exit_code, 0) << native.errors;
  EXPECT_GE(count_of(native.output, "count 0/0 1\n"), 1u) << native.output;
  const ChildResult child = lent(program);
  EXPECT_EQ(child.exit_code, 0) << child.errors;
  EXPECT_EQ(child.output, native.output);
  EXPECT_EQ(
      child.other_errors(),
      "braid: " + holder +
          " holds CUDA's runtime library statically, which would show lent GPUs to the program. "
          "No GPU is lent. Link the runtime with nvcc -cudart shared\n");
  const auto all = child.statistics();
  ASSERT_EQ(all.size(), 1u);
  EXPECT_EQ(counted(all[0], "cuMemcpyHtoD_v2", "accelerated").calls, 0u) << all[0];
}

TEST(LendCudart, AStaticRuntimeIsNotShownWhatItWouldShow) {
  expect_declined(joined({kStaticProgram}, pci_addresses()), kStaticProgram);
  expect_declined(client({"library=" + kWithStatic, "library=" + kWith98}), kWithStatic);
}

// What is lent stays so. Such copies are in libraries that ask which GPU is in use.
TEST(LendCudart, AStaticRuntimeThatStartsLaterStartsAndSeesAll) {
  const Words program = client({"library=" + kWith98, "library=" + kWithStatic});
  const ChildResult child = lent(program);
  const auto statistics = only_statistics(child);
  EXPECT_EQ(count_of(child.output, "runtime 98, count 0/0 1\n"), 1u) << child.output;
  EXPECT_EQ(count_of(child.output, "runtime 97, count 0/0 8\n"), 1u) << child.output;
  EXPECT_EQ(count_of(child.output, "\n1: 101/101 "), 2u) << "none may be used";
  EXPECT_EQ(counted(statistics, "cuMemcpyHtoD_v2", "accelerated").calls, 2u) << statistics;
}

TEST(LendCudart, WithoutLendingNothingChanges) {
  const Words everything =
      client({"lookups=" + kRuntime98, "library=" + kWith90, "library=" + kWithStatic,
              "handle=" + kRuntime98, "default=" + kRuntime98, "driver"});
  for (const Words& program : {everything, joined({kSharedProgram}, pci_addresses()),
                               joined({kStaticProgram}, pci_addresses())})
    for (const char* devices : {"3", ""}) {
      const ChildResult native = natively(program, visible(devices));
      const ChildResult child = with_braid(program, {}, visible(devices));
      EXPECT_EQ(child.exit_code, 0) << child.errors;
      // Where the runtime is global, its place before it is braid's.
      const std::regex global("(default|next|program): libbraid_preload.so");
      EXPECT_EQ(std::regex_replace(child.output, global, "$1: libcudart.so.98"), native.output);
    }
}

TEST(LendCudart, WhatFollowsALibraryIsItsOwnRuntime) {
  const Words program = client({"next=" + kWith98});
  EXPECT_EQ(natively(program).output, " next: libcudart.so.98\n");
  EXPECT_EQ(with_braid(program).output, " next: libcudart.so.98\n");
  EXPECT_EQ(lent(program).output, " next: libbraid_preload.so\n");
}

TEST(LendCudart, WhatIsNotThereIsNotFound) {
  const Words program = client({"lookups=" + kRuntime98});
  const ChildResult native = natively(program, visible("3"));
  ASSERT_EQ(count_of(native.output, "libcudart.so.98"), 10u) << native.output;
  const ChildResult child = lent(program);
  EXPECT_EQ(std::regex_replace(child.output, std::regex("libbraid_preload.so"), "libcudart.so.98"),
            native.output);
  EXPECT_EQ(count_of(child.output, "cudaSetDevice: default: nowhere"), 2u) << child.output;
  EXPECT_EQ(count_of(child.output, "runtime: libbraid_preload.so"), 2u) << child.output;
}

}  // namespace
}  // namespace braid::test
