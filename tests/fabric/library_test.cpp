// include/braid/fabric.h, as a program that links libbraid_fabric uses it.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <thread>

#include "braid/fabric.h"
#include "fabric/fake_provider/use.h"
#include "fabric/library_pair.h"
#include "support/cpu_time.h"

namespace braid {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

class FabricTest : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    fabric::test::use_fake_providers();
    auto owner = Fabric::open(options());
    ASSERT_TRUE(owner.ok()) << owner.status().message();
    owner_.emplace(std::move(owner).value());
    writer_.emplace(Fabric::open(options()).value());
    const auto peer = writer_->connect(owner_->address().value(), seconds(60));
    ASSERT_TRUE(peer.ok()) << peer.status().message();
    owners_peer_ = peer.value();
    writers_peer_ = owner_->accept(seconds(60)).value().value();
  }

  Fabric::Options options() const {
    Fabric::Options options{GetParam(), {"127.0.0.1", "127.0.0.1"}};
    if (options.provider == "efa") {
      options.addresses = {"fake_rdmap0", "fake_rdmap1"};
      options.allow_unauthenticated = true;
    }
    return options;
  }

  std::optional<Fabric> owner_, writer_;
  Fabric::Peer owners_peer_{}, writers_peer_{};
};

TEST_P(FabricTest, ALostPeerHasACodeOfItsOwn) {
  std::vector<std::byte> memory(100), source(100);
  const auto region = owner_->add_region(memory.data(), memory.size()).value();
  const auto descriptor = owner_->grant(region, writers_peer_, 0, memory.size()).value().descriptor;
  const auto target = writer_->open_target(descriptor).value();
  const auto from = writer_->add_region(source.data(), source.size()).value();
  owner_.reset();
  const auto lost = writer_->wait_lost(seconds(20)).value();
  ASSERT_TRUE(lost.has_value());
  const auto expect = [&](braid_status about_target, braid_status about_peer) {
    EXPECT_EQ(writer_->write(from, target, {0, 0, 1}, {}, seconds(1)).status().code(),
              about_target);
    EXPECT_EQ(writer_->notify(owners_peer_, 1, seconds(1)).status().code(), about_peer);
    EXPECT_EQ(writer_->send(owners_peer_, {std::byte{1}}).code(), about_peer);
    EXPECT_EQ(writer_->grant(from, owners_peer_, 0, 1).status().code(), about_peer);
    EXPECT_EQ(writer_->open_target(descriptor).status().code(), about_peer);
  };
  expect(BRAID_ERROR_PEER, BRAID_ERROR_PEER);
  EXPECT_EQ(writer_->write(from, Fabric::Target{99}, {0, 0, 1}, {}, seconds(1)).status().code(),
            BRAID_ERROR_ARGUMENT);
  const Status disconnected = writer_->disconnect(owners_peer_);
  ASSERT_TRUE(disconnected.ok());
  EXPECT_EQ(disconnected.code(), BRAID_OK);
  expect(BRAID_ERROR_ARGUMENT, BRAID_ERROR_ARGUMENT);
  EXPECT_EQ(writer_->add_region(source.data(), 0).status().code(), BRAID_ERROR_ARGUMENT);
}

TEST_P(FabricTest, AWholeWriteFromGrantToFence) {
  std::vector<std::byte> source(2'000'003, std::byte{7}), memory(source.size());
  const auto region = owner_->add_region(memory.data(), memory.size()).value();
  const auto granted = owner_->grant(region, writers_peer_, 0, memory.size()).value();
  const auto immediate = owner_->acquire_immediate().value();
  Fabric::ByteList order(sizeof immediate + granted.descriptor.size());
  std::memcpy(order.data(), &immediate, sizeof immediate);
  std::memcpy(order.data() + sizeof immediate, granted.descriptor.data(),
              granted.descriptor.size());
  ASSERT_TRUE(owner_->send(writers_peer_, order).ok());

  std::thread writer([&] {
    const auto message = writer_->receive(seconds(60)).value().value();
    EXPECT_EQ(message.from, owners_peer_);
    uint32_t told = 0;
    std::memcpy(&told, message.bytes.data(), sizeof told);
    const auto target = writer_->open_target({message.bytes.begin() + 4, message.bytes.end()});
    const auto from = writer_->add_region(source.data(), source.size()).value();
    const auto ticket =
        writer_->write(from, target.value(), {0, 0, source.size()}, told, seconds(60)).value();
    EXPECT_EQ(writer_->wait(ticket, seconds(60)).value(), Fabric::TicketState::kDone);
    writer_->forget(ticket);
    EXPECT_FALSE(writer_->wait(ticket, seconds(0)).ok()) << "it was forgotten";
    EXPECT_TRUE(writer_->remove_region(from).ok());
  });
  const uint64_t expected = Fabric::immediates_of_write(memory.size());
  EXPECT_EQ(owner_->wait_count(immediate, expected, seconds(60)).value(), expected);
  EXPECT_EQ(memory, source);
  writer.join();
  EXPECT_TRUE(owner_->release(immediate).ok());
  EXPECT_FALSE(owner_->remove_region(region).ok());
  EXPECT_EQ(owner_->revoke(granted.grant, seconds(60)).value(), Fabric::Fence::kFenced);
  EXPECT_TRUE(owner_->forget(granted.grant).ok());
  EXPECT_TRUE(owner_->remove_region(region).ok());
}

TEST_P(FabricTest, RailsAreCountedAndRetired) {
  std::vector<std::byte> source(3'000'000, std::byte{5}), memory(source.size());
  const auto region = owner_->add_region(memory.data(), memory.size()).value();
  const auto granted = owner_->grant(region, writers_peer_, 0, memory.size()).value();
  const auto target = writer_->open_target(granted.descriptor).value();
  const auto from = writer_->add_region(source.data(), source.size()).value();
  const auto write = [&] {
    const auto ticket = writer_->write(from, target, {0, 0, source.size()}, {}, seconds(60));
    EXPECT_EQ(writer_->wait(ticket.value(), seconds(60)).value(), Fabric::TicketState::kDone);
    std::vector<uint64_t> bytes;
    const std::vector<Fabric::Route> routes = writer_->routes().value();
    for (const Fabric::Route& route : routes) {
      EXPECT_EQ(route.peer, owners_peer_);
      EXPECT_EQ(route.failures, 0u);
      bytes.push_back(route.bytes);
    }
    return bytes;
  };
  const auto first = write();
  ASSERT_EQ(first.size(), 2u);
  EXPECT_EQ(first[0] + first[1], source.size());
  ASSERT_TRUE(writer_->retire_rail(1).ok());
  const auto second = write();
  EXPECT_EQ(second[0], first[0] + source.size());
  EXPECT_EQ(second[1], first[1]);
  EXPECT_EQ(writer_->routes().value()[1].state, Fabric::RailState::kRetired);
  EXPECT_FALSE(writer_->retire_rail(0).ok()) << "the last";
  EXPECT_TRUE(writer_->restore_rail(1).ok());
  EXPECT_FALSE(writer_->restore_rail(2).ok());
  EXPECT_EQ(owner_->statistics().value().strays, 0u);
  const std::string json = writer_->report(Fabric::Form::kJson).value();
  EXPECT_NE(json.find("\"bytes\":" + std::to_string(second[0])), std::string::npos) << json;
  const std::string place = options().provider == "efa"
                                ? "\"address\":\"fake_rdmap0\",\"nic\":null"
                                : "\"address\":\"127.0.0.1\",\"nic\":\"lo\"";
  EXPECT_NE(json.find(place), std::string::npos) << json;
  const std::string text = writer_->report(Fabric::Form::kText).value();
  EXPECT_NE(text.find("2 rails, 1 peers"), std::string::npos) << text;
  EXPECT_NE(writer_->report(Fabric::Form::kPrometheus).value().find("braid_fabric_bytes_total{"),
            std::string::npos);
  EXPECT_EQ(braid_fabric_report(writer_->get(), 7, nullptr, 0, nullptr), BRAID_ERROR_ARGUMENT);
}

TEST_P(FabricTest, APeerIsToldThatARailIsRetiredAndRestored) {
  const auto state = [&] { return writer_->routes().value()[1].state; };
  ASSERT_TRUE(owner_->retire_rail(1).ok());
  EXPECT_TRUE(test::eventually([&] { return state() == Fabric::RailState::kRetired; }));
  ASSERT_TRUE(owner_->restore_rail(1).ok());
  EXPECT_TRUE(test::eventually([&] { return state() == Fabric::RailState::kUp; }));
}

TEST_P(FabricTest, PagesLandWhileTheOwnerDoesNotCall) {
  constexpr uint32_t kPages = 50;
  constexpr size_t kPageBytes = 8192;
  std::vector<std::byte> source(kPages * kPageBytes, std::byte{3}), memory(source.size());
  const auto region = owner_->add_region(memory.data(), memory.size()).value();
  const auto granted = owner_->grant(region, writers_peer_, 0, memory.size()).value();
  const auto target = writer_->open_target(granted.descriptor).value();
  const auto from = writer_->add_region(source.data(), source.size()).value();
  Fabric::Pages pages{{}, kPageBytes, 0}, turned{{}, kPageBytes, 0};
  for (uint32_t i = 0; i < kPages; ++i) {
    pages.indices.push_back(i);
    turned.indices.push_back(kPages - 1 - i);
  }
  const auto ticket =
      writer_->write_pages(from, pages, target, turned, kPageBytes, {}, seconds(60));
  EXPECT_EQ(writer_->wait(ticket.value(), seconds(60)).value(), Fabric::TicketState::kDone);
  EXPECT_EQ(memory, source) << "the owner's own thread has looked";
}

TEST_P(FabricTest, AScatterAndABarrierHaveOneTicketEach) {
  std::vector<std::byte> source(1000, std::byte{4}), memory(1000), expected(1000);
  const auto region = owner_->add_region(memory.data(), memory.size()).value();
  const auto granted = owner_->grant(region, writers_peer_, 0, memory.size()).value();
  const auto from = writer_->add_region(source.data(), source.size()).value();
  const auto there = owner_->acquire_immediate().value();
  const auto here = writer_->acquire_immediate().value();
  const auto arrives = owner_->acquire_immediate().value();
  const auto target = writer_->open_target(granted.descriptor).value();
  const auto writers = writer_->add_group({{owners_peer_, target, there, here}}).value();
  const auto owners = owner_->add_group({{writers_peer_, {}, here, there}}).value();

  const auto scattered =
      writer_->scatter(from, writers, {{{0, 10, 900}, arrives}}, seconds(60)).value();
  EXPECT_EQ(writer_->wait(scattered, seconds(60)).value(), Fabric::TicketState::kDone);
  EXPECT_EQ(owner_->wait_count(arrives, 1, seconds(60)).value(), 1u);
  std::fill_n(expected.begin() + 10, 900, std::byte{4});
  EXPECT_EQ(memory, expected);
  EXPECT_FALSE(writer_->scatter(from, writers, {}, seconds(60)).ok());

  const auto mine = writer_->barrier(writers, seconds(60)).value();
  EXPECT_EQ(writer_->wait(mine, milliseconds(60)).value(), Fabric::TicketState::kPending);
  const auto others = owner_->barrier(owners, seconds(60)).value();
  EXPECT_EQ(writer_->wait(mine, seconds(60)).value(), Fabric::TicketState::kDone);
  EXPECT_EQ(owner_->wait(others, seconds(60)).value(), Fabric::TicketState::kDone);

  const auto alone = writer_->barrier(writers, milliseconds(60)).value();
  while (writer_->wait(alone, seconds(60)).value() == Fabric::TicketState::kQuarantined)
    std::this_thread::sleep_for(milliseconds(1));  // its rail connects only now
  EXPECT_EQ(writer_->wait(alone, seconds(60)).value(), Fabric::TicketState::kFailed);
  EXPECT_EQ(writer_->missing(alone).value(), std::vector<Fabric::Peer>{owners_peer_});
  EXPECT_TRUE(writer_->remove_group(writers).ok());
}

/// Whoever has called connect is told, and nobody else.
TEST_P(FabricTest, AConnectThatNobodyAnswersIsNoLoss) {
  Fabric::ByteList nobody;
  {
    Fabric gone = Fabric::open(options()).value();
    nobody = gone.address().value();
  }
  std::optional<Fabric::Lost> lost;
  std::thread waiting([&] {
    lost = owner_->wait_lost(seconds(1)).value();
    if (lost) (void)owner_->disconnect(lost->peer);
  });
  const auto connected = owner_->connect(nobody, milliseconds(300));
  waiting.join();
  EXPECT_FALSE(lost.has_value());
  const std::string why = connected.status().message();
  EXPECT_TRUE(why.starts_with("the peer has not answered within 0.3 s") ||
              why.starts_with("the peer cannot be reached"))
      << why;
  Fabric late = Fabric::open(options()).value();
  EXPECT_TRUE(late.connect(owner_->address().value(), seconds(10)).ok()) << "its thread goes on";
}

TEST_P(FabricTest, ACancelledBarrierFailsAndNamesWhoDidNotCome) {
  const auto there = owner_->acquire_immediate().value();
  const auto here = writer_->acquire_immediate().value();
  const auto group = writer_->add_group({{owners_peer_, {}, there, here}}).value();
  const auto ticket = writer_->barrier(group, seconds(60)).value();
  EXPECT_EQ(writer_->wait(ticket, milliseconds(60)).value(), Fabric::TicketState::kPending);
  ASSERT_TRUE(writer_->cancel(ticket).ok());
  EXPECT_EQ(writer_->wait(ticket, seconds(60)).value(), Fabric::TicketState::kFailed);
  EXPECT_EQ(writer_->missing(ticket).value(), std::vector<Fabric::Peer>{owners_peer_});
  writer_->forget(ticket);
  EXPECT_FALSE(writer_->cancel(ticket).ok()) << "it was forgotten";
}

/// A number whose writes have not all come rests, unless it is forgiven.
TEST_P(FabricTest, AForgivenImmediateIsHandedOutAgain) {
  const auto resting = owner_->acquire_immediate().value();
  const auto forgiven = owner_->acquire_immediate().value();
  ASSERT_TRUE(owner_->release(resting, 1).ok());
  ASSERT_TRUE(owner_->release(forgiven, 1).ok());
  ASSERT_TRUE(owner_->forgive(forgiven).ok());
  int resting_seen = 0, forgiven_seen = 0;
  for (int i = 0; i < 300; ++i) {
    const auto next = owner_->acquire_immediate().value();
    resting_seen += next >> 12 == resting >> 12;
    forgiven_seen += next >> 12 == forgiven >> 12;
    ASSERT_TRUE(owner_->release(next).ok());
  }
  EXPECT_EQ(resting_seen, 0);
  EXPECT_GT(forgiven_seen, 0);
}

/// Signals are the program's.
TEST_P(FabricTest, NoThreadOfTheEngineTakesSignals) {
  ASSERT_TRUE(owner_->on_messages([] {}).ok());
  const auto threads = [] {
    int count = 0;
    for (const auto& task : std::filesystem::directory_iterator("/proc/self/task")) {
      std::string name, line;
      std::getline(std::ifstream(task.path() / "comm"), name);
      if (name != "braid") continue;
      std::ifstream status(task.path() / "status");
      while (std::getline(status, line) && !line.starts_with("SigBlk:")) {
      }
      if (line.empty()) continue;  // it has ended just now
      ++count;
      const uint64_t blocked = std::stoull(line.substr(7), nullptr, 16);
      EXPECT_NE(blocked & uint64_t{1} << (SIGTERM - 1), 0u) << task.path();
    }
    return count;
  };
  // Of two engines, and one that calls back. Those that open endpoints of TCP ahead end soon.
  EXPECT_TRUE(test::eventually([&] { return threads() == 3; })) << threads();
}

TEST_P(FabricTest, WaitingEndsAtItsLimit) {
  const auto immediate = owner_->acquire_immediate().value();
  EXPECT_EQ(owner_->wait_count(immediate, 1, milliseconds(5)).value(), 0u);
  EXPECT_FALSE(owner_->accept(milliseconds(5)).value().has_value());
  EXPECT_FALSE(owner_->receive(milliseconds(5)).value().has_value());
}

/// Neither the thread that waits nor the engine's: what comes wakes them.
TEST_P(FabricTest, WaitingTakesLittleCpuAndMissesNothing) {
  const auto immediate = owner_->acquire_immediate().value();
  const double before_s = braid::test::cpu_seconds(CLOCK_PROCESS_CPUTIME_ID);
  EXPECT_EQ(owner_->wait_count(immediate, 1, std::chrono::seconds(1)).value(), 0u);
  EXPECT_LT(braid::test::cpu_seconds(CLOCK_PROCESS_CPUTIME_ID) - before_s, 0.5);
  std::thread late([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    EXPECT_TRUE(writer_->notify(owners_peer_, immediate, std::chrono::seconds(60)).ok());
  });
  EXPECT_EQ(owner_->wait_count(immediate, 1, std::chrono::seconds(60)).value(), 1u);
  late.join();
}

TEST_P(FabricTest, WhatIsWrongIsAnErrorInWords) {
  EXPECT_FALSE(writer_->connect({std::byte{1}}, seconds(1)).ok());
  EXPECT_FALSE(writer_->open_target({std::byte{1}}).ok());
  EXPECT_FALSE(owner_->wait_count(12345, 1, seconds(1)).ok());
  EXPECT_EQ(braid_fabric_send(nullptr, 1, nullptr, 0), BRAID_ERROR_ARGUMENT);
  EXPECT_STREQ(braid_fabric_last_error(), "a pointer that must be given is null");
  const braid_fabric_pages none{nullptr, 4096, 0};
  uint64_t ticket = 0;
  EXPECT_EQ(braid_fabric_write_pages(writer_->get(), 1, &none, 1, &none, 4096, 3, nullptr, nullptr,
                                     0, &ticket),
            BRAID_ERROR_ARGUMENT);
  EXPECT_STREQ(braid_fabric_last_error(), "a list of pages is null, and page_count counts them");
  braid_fabric_options two_of_none{};
  two_of_none.struct_bytes = sizeof two_of_none;
  two_of_none.address_count = 2;
  braid_fabric* opened = nullptr;
  EXPECT_EQ(braid_fabric_open(&two_of_none, &opened), BRAID_ERROR_ARGUMENT);
  EXPECT_STREQ(braid_fabric_last_error(), "an address is null, and address_count counts it");
  struct {
    braid_fabric_options known{};
    uint64_t later_field = 1;
  } newer;
  newer.known.struct_bytes = sizeof newer;
  EXPECT_EQ(braid_fabric_open(&newer.known, &opened), BRAID_ERROR_ARGUMENT);
  EXPECT_STREQ(braid_fabric_last_error(),
               "braid_fabric_options: the program sets fields that this library does not know. "
               "Install the version that the program was built with");
}

TEST_P(FabricTest, AnEngineIsDeadInAChildAndSaysSo) {
  const pid_t child = fork();
  if (child == 0) {
    const auto immediate = owner_->acquire_immediate();
    const bool says_so =
        !immediate.ok() && immediate.status().message().find("parent") != std::string::npos;
    owner_.reset();
    _exit(says_so ? 0 : 1);
  }
  int status = -1;
  waitpid(child, &status, 0);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
  EXPECT_TRUE(owner_->acquire_immediate().ok());
}

TEST(FabricOpenTest, AnUnknownProviderIsAnError) {
  const auto opened = Fabric::open({"pigeons", {}});
  ASSERT_FALSE(opened.ok());
  EXPECT_NE(opened.status().message().find("does not know the provider 'pigeons'"),
            std::string::npos);
}

// Not shm: two engines of one process share their mappings there (fabric_abi.h). Engines of two
// processes are in process_test.cpp.
TEST(FabricProviders, EfaReachesOtherHostsAndItsRailsAreDevices) {
  fabric::test::use_fake_providers();
  Fabric::Options options{"efa", {"127.0.0.1"}};
  EXPECT_NE(Fabric::open(options).status().message().find("there is no secret"), std::string::npos);
  options.allow_unauthenticated = true;
  EXPECT_TRUE(Fabric::open(options).ok()) << "the first device";
  options.addresses = {"rdmap9"};
  EXPECT_EQ(Fabric::open(options).status().message(),
            "efa: there is no device 'rdmap9'. Here are fake_rdmap0-rdm, fake_rdmap1-rdm");
}

TEST(FabricProviders, ARegistrationCacheThatKeepsMemoryOpenIsRefused) {
  fabric::test::use_fake_providers();
  unsetenv("FI_MR_CACHE_MAX_COUNT");
  const auto opened = Fabric::open({"verbs;ofi_rxm", {"127.0.0.1"}});
  EXPECT_EQ(opened.status().message(),
            "verbs;ofi_rxm: libfabric's registration cache leaves memory open to peers after its "
            "region was closed. Start the program with FI_MR_CACHE_MAX_COUNT=0");
}

INSTANTIATE_TEST_SUITE_P(Providers, FabricTest,
                         testing::Values("tcp;ofi_rxm", "net", "verbs;ofi_rxm", "efa", "local"),
                         [](const auto& provider) {
                           return std::string(provider.param).substr(0, 3);
                         });

}  // namespace
}  // namespace braid
