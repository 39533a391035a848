// A child process of a program with an open engine: the parent's memory stays the parent's.
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <vector>

#include "fabric/fake_provider/use.h"
#include "fabric/library_pair.h"

namespace braid::test {
namespace {

class FabricForkTest : public FabricPair {
 protected:
  void SetUp() override {
    fabric::test::use_fake_providers();  // for the tests after it: libfabric starts once
    FabricPair::SetUp();
  }
};

/// Trap 9: after a fork both processes have the same pages, until one of them writes.
TEST_F(FabricForkTest, WhileAChildLivesWritesReachTheParentAlone) {
  std::vector<std::byte> memory(300'000, std::byte{1}), source(memory.size(), std::byte{2});
  const auto target = open_memory(memory);
  const auto from = writer_->add_region(source.data(), source.size()).value();
  const auto immediate = owner_->acquire_immediate().value();
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  const pid_t child = fork();
  if (child == 0) {
    close(ends[1]);
    char byte = 0;
    const bool is_over = read(ends[0], &byte, 1) == 0;  // the parent's writes have ended
    const auto is_old = [](std::byte each) { return each == std::byte{1}; };
    _exit(is_over && std::all_of(memory.begin(), memory.end(), is_old) ? 0 : 1);
  }
  close(ends[0]);
  const auto ticket = writer_->write(from, target, {0, 0, source.size()}, immediate, kLimit);
  EXPECT_EQ(writer_->wait(ticket.value(), kLimit).value(), Fabric::TicketState::kDone);
  const uint64_t expected = Fabric::immediates_of_write(source.size());
  EXPECT_EQ(owner_->wait_count(immediate, expected, kLimit).value(), expected);
  EXPECT_EQ(memory, source);
  close(ends[1]);
  int status = -1;
  waitpid(child, &status, 0);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << "the child's copy has changed";
}

using Bytes = std::vector<std::byte>;

bool has_files_called(const std::string& name) {
  for (const auto& file : std::filesystem::directory_iterator("/proc/self/fd")) {
    std::error_code gone;
    if (std::filesystem::read_symlink(file.path(), gone).string().find(name) != std::string::npos)
      return true;
  }
  return false;
}

bool holds_only(const void* memory, size_t size_bytes, std::byte value) {
  const auto* bytes = static_cast<const std::byte*>(memory);
  return std::all_of(bytes, bytes + size_bytes, [&](std::byte each) { return each == value; });
}

/// In a child process: has memory of its own written, which lies at `address`. Says its engine's
/// address to `said`.
bool is_written_at(void* address, size_t size_bytes, int said) {
  constexpr std::chrono::seconds kLimit{60};
  void* own = mmap(address, size_bytes, PROT_READ | PROT_WRITE,
                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
  if (own != address) return false;  // the parent's memory is there
  Fabric fabric = Fabric::open({"local", {"127.0.0.1", "127.0.0.1"}}).value();
  const Bytes engine = fabric.address().value();
  if (write(said, engine.data(), engine.size()) != static_cast<ssize_t>(engine.size()))
    return false;
  const auto peer = fabric.accept(kLimit).value().value();
  const auto region = fabric.add_region(own, size_bytes).value();
  const auto granted = fabric.grant(region, peer, 0, size_bytes).value();
  const auto immediate = fabric.acquire_immediate().value();
  Bytes message = granted.descriptor;
  message.resize(message.size() + sizeof immediate);
  std::memcpy(message.data() + granted.descriptor.size(), &immediate, sizeof immediate);
  if (!fabric.send(peer, message).ok()) return false;
  const uint64_t expected = Fabric::immediates_of_write(size_bytes);
  return fabric.wait_count(immediate, expected, kLimit).value() == expected &&
         holds_only(own, size_bytes, std::byte{2}) && !has_files_called("braid-fabric");
}

class ShmForkTest : public FabricPair {
 protected:
  void SetUp() override { open("shm"); }
};

/// A worker that is terminated has inherited libfabric's signal handler, which removes files.
TEST_F(ShmForkTest, PeersFindTheParentAfterAChildWasTerminated) {
  const pid_t child = fork();
  if (child == 0) {
    for (;;) pause();
  }
  kill(child, SIGTERM);
  int status = -1;
  waitpid(child, &status, 0);
  EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGTERM);
  Fabric peer = Fabric::open({"shm", {"127.0.0.1", "127.0.0.1"}}).value();
  const auto found = peer.connect(owner_->address().value(), kLimit);
  EXPECT_TRUE(found.ok()) << found.status().message();
}

class LocalForkTest : public FabricPair {
 protected:
  void SetUp() override { open("local"); }
};

/// A child that lives on would keep them, and its parent's peers would keep their memory.
TEST_F(LocalForkTest, AChildHoldsNoFileOfTheMemoryThatItsParentSharesWithPeers) {
  ASSERT_TRUE(owner_->allocate_memory(300'000).ok());
  const pid_t child = fork();
  if (child == 0) {
    const bool has_some = has_files_called("braid-local") || has_files_called("braid-fabric");
    _exit(has_some ? 1 : 0);
  }
  int status = -1;
  waitpid(child, &status, 0);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
  EXPECT_TRUE(has_files_called("braid-fabric")) << "the parent needs that one";
}

/// Where the parent has memory that peers map, the child has a hole, and may allocate there.
TEST_F(LocalForkTest, MemoryOfAChildAtAnAddressOfItsParentsIsTheChilds) {
  constexpr size_t kBytes = 300'000;
  const auto allocated = owner_->allocate_memory(kBytes).value();
  int said[2];
  ASSERT_EQ(pipe(said), 0);
  const pid_t child = fork();
  if (child == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    _exit(is_written_at(allocated.memory, kBytes, said[1]) ? 0 : 1);
  }
  close(said[1]);
  Bytes engine(1024);
  const ssize_t size_bytes = read(said[0], engine.data(), engine.size());
  close(said[0]);
  if (size_bytes > 0) {
    engine.resize(static_cast<size_t>(size_bytes));
    const auto peer = writer_->connect(engine, kLimit);
    ASSERT_TRUE(peer.ok()) << peer.status().message();
    Bytes message = writer_->receive(kLimit).value().value().bytes;
    Fabric::Immediate immediate = 0;
    const size_t descriptor_bytes = message.size() - sizeof immediate;
    std::memcpy(&immediate, message.data() + descriptor_bytes, sizeof immediate);
    message.resize(descriptor_bytes);
    const auto target = writer_->open_target(message).value();
    Bytes source(kBytes, std::byte{2});
    const auto from = writer_->add_region(source.data(), kBytes).value();
    const auto ticket = writer_->write(from, target, {0, 0, kBytes}, immediate, kLimit).value();
    EXPECT_EQ(writer_->wait(ticket, kLimit).value(), Fabric::TicketState::kDone);
  }
  int status = -1;
  EXPECT_TRUE(holds_only(allocated.memory, kBytes, std::byte{0})) << "the parent's was written";
  waitpid(child, &status, 0);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

}  // namespace
}  // namespace braid::test
