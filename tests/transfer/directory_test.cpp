// Questions to engines by name: each that cannot be answered has a cause of its own, and strangers
// hold nobody up.
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <filesystem>
#include <thread>

#include "base/clock.h"
#include "transfer/directory/live_report.h"
#include "transfer/directory/resolve.h"
#include "transfer/directory/server.h"
#include "transfer/failure.h"
#include "transfer/sealed.h"
#include "transfer/some_answer.h"

namespace braid::transfer {
namespace {

/// Whoever listens there.
Name anyone_at(const HostAndPort& at) {
  return parse_name("braid://" + at.host + ":" + std::to_string(at.port)).value();
}

/// An owner of version 1 closes the connection of whoever asks in a newer one.
TEST(TransferDirectory, AnOwnerOfAnOlderVersionIsAskedInThat) {
  const fabric::Secret none;
  uint16_t port = 0;
  const Descriptor listener = listen_at({"127.0.0.1", 0}, port).value();
  const uint64_t end_ns = monotonic_ns() + 20'000'000'000;
  std::thread owner([&] {
    for (uint16_t version = kVersion; version >= 1; --version) {
      pollfd awaited{listener.get(), POLLIN, 0};
      ASSERT_EQ(poll(&awaited, 1, 20'000), 1);
      const Descriptor socket(accept(listener.get(), nullptr, nullptr));
      std::vector<std::byte> received(256);
      const ssize_t got = recv(socket.get(), received.data(), received.size(), 0);
      ASSERT_GT(got, 4);
      const auto question =
          decode_question(Bytes(received).first(static_cast<size_t>(got)).subspan(4), none);
      ASSERT_TRUE(question.ok());
      EXPECT_EQ(question.value().version, version);
      if (version > 1) continue;
      Answer answer = some_answer();
      answer.nonce = question.value().nonce;
      answer.description.version = 1;
      const auto bytes = frame(encode(answer, none, 1));
      EXPECT_EQ(send(socket.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL),
                static_cast<ssize_t>(bytes.size()));
    }
  });
  const Name name = anyone_at({"127.0.0.1", port});
  const auto found = resolve(name, "", none, end_ns);
  owner.join();
  ASSERT_TRUE(found.ok()) << found.status().message();
  EXPECT_EQ(found.value().name, "prefill-0");
}

/// As multiprocessing has them: forked, without exec.
TEST(TransferDirectory, AChildKeepsNoAddressOfItsParent) {
  const std::string folder = testing::TempDir() + "/braid-child-" + std::to_string(getpid());
  setenv("BRAID_RUNTIME_DIR", folder.c_str(), 1);
  const auto open_at = [](uint16_t port) {
    return DirectoryServer::open(
        {"127.0.0.1", port}, "prefill-0", {},
        {{1, 1}, [] { return Description(); }, [](const auto&) { return ""; }});
  };
  auto server = open_at(0);
  ASSERT_TRUE(server.ok()) << server.status().message();
  const pid_t child = fork();
  if (child == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    for (;;) raise(SIGSTOP);
  }
  ASSERT_EQ(waitpid(child, nullptr, WUNTRACED), child) << "once it runs";
  const uint16_t port = server.value()->at().port;
  server.value().reset();
  const auto again = open_at(port);
  EXPECT_TRUE(again.ok()) << again.status().message();
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
  std::filesystem::remove_all(folder);
}

std::string some_report() { return "{\"some\": \"report\"}"; }

/// An engine that answers questions, from a thread of its own. `described`: how often it has looked
/// at itself.
class Answering {
 public:
  explicit Answering(const fabric::Secret& secret, std::string report = some_report())
      : server_(
            DirectoryServer::open({"127.0.0.1", 0}, "", secret,
                                  {some_answer().description.incarnation,
                                   [this] {
                                     ++described;
                                     return some_answer().description;
                                   },
                                   [report = std::move(report)](const auto&) { return report; }})
                .value()),
        thread_([this] {
          while (!is_over_) server_->step(monotonic_ns() + skip_ns);
        }) {}
  ~Answering() { end(); }
  void end() {
    is_over_ = true;
    if (thread_.joinable()) thread_.join();
  }
  const HostAndPort& at() const { return server_->at(); }
  /// Once it has ended.
  const DirectoryStatistics& statistics() const { return server_->statistics(); }

  std::atomic<int> described = 0;
  std::atomic<uint64_t> skip_ns = 0;

 private:
  std::unique_ptr<DirectoryServer> server_;
  std::atomic<bool> is_over_ = false;
  std::thread thread_;
};

fabric::Secret secret_of(int value) {
  return fabric::Secret::of(std::vector<std::byte>(32, static_cast<std::byte>(value))).value();
}

/// A question in that version, to an owner of this braid.
Result<Answer> answer_to(uint16_t version, const fabric::Secret& asker,
                         const fabric::Secret& owner) {
  const Answering engine(owner);
  const uint64_t end_ns = monotonic_ns() + 20'000'000'000;
  Question question;
  question.nonce = 99;
  question.version = version;
  const auto bytes =
      ask(connect_to(engine.at(), end_ns).value(), encode(question, asker), kFrameBytesMax, end_ns);
  if (!bytes.ok()) return bytes.status();
  return decode_answer(bytes.value(), asker);
}

TEST(TransferDirectory, AVersionThatItDoesNotKnowIsToldWhichItKnows) {
  for (const uint16_t version : {uint16_t{0}, uint16_t{kVersion + 1}, uint16_t{kVersion + 7}}) {
    const auto answer = answer_to(version, {}, {});
    ASSERT_TRUE(answer.ok()) << version << ": " << answer.status().message();
    EXPECT_EQ(answer.value().cause, Cause::kOtherVersion);
    EXPECT_EQ(answer.value().nonce, 99u) << "a recorded refusal is of no use";
    EXPECT_EQ(answer.value().description.version_oldest, kVersionOldest);
    EXPECT_EQ(answer.value().description.version, kVersion);
    EXPECT_TRUE(answer.value().description.rails.empty());
  }
}

TEST(TransferDirectory, WhoHasAnotherSecretLearnsThatAndNoMore) {
  for (const fabric::Secret& asker : {fabric::Secret(), secret_of(4)}) {
    const auto answer = answer_to(kVersion, asker, secret_of(5));
    ASSERT_FALSE(answer.ok());
    EXPECT_EQ(cause_of(answer.status()), Cause::kOtherSecret) << answer.status().message();
  }
}

/// The owner answers in a version that is not known here, as a later braid would.
TEST(TransferDirectory, AnOwnerWhoseVersionsAreAllNewerIsACauseOfItsOwn) {
  const fabric::Secret none;
  uint16_t port = 0;
  const Descriptor listener = listen_at({"127.0.0.1", 0}, port).value();
  std::thread owner([&] {
    pollfd awaited{listener.get(), POLLIN, 0};
    ASSERT_EQ(poll(&awaited, 1, 20'000), 1);
    const Descriptor socket(accept(listener.get(), nullptr, nullptr));
    std::vector<std::byte> received(256);
    ASSERT_GT(recv(socket.get(), received.data(), received.size(), 0), 4);
    const auto bytes = frame(encode(some_answer(), none, kVersion + 1));
    EXPECT_GT(send(socket.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL), 0);
  });
  const Name name = anyone_at({"127.0.0.1", port});
  const auto found = resolve(name, "", none, monotonic_ns() + 20'000'000'000);
  owner.join();
  ASSERT_FALSE(found.ok());
  EXPECT_EQ(cause_of(found.status()), Cause::kOtherVersion) << found.status().message();
}

/// `braid rails` asks for it.
TEST(TransferDirectory, ARunningEngineSaysHowItDoesToWhoHasTheSecret) {
  Answering engine(secret_of(1));
  Name name = parse_name(write_name(engine.at(), some_answer().description.incarnation)).value();
  const uint64_t end_ns = monotonic_ns() + 20'000'000'000;
  const auto report = ask_for_report(name, "", secret_of(1), end_ns);
  const auto stranger = ask_for_report(name, "", secret_of(2), end_ns);
  name.incarnation = {7, 7};
  const auto other = ask_for_report(name, "", secret_of(1), end_ns);
  ASSERT_TRUE(report.ok()) << report.status().message();
  EXPECT_EQ(report.value(), some_report());
  EXPECT_EQ(cause_of(stranger.status()), Cause::kOtherSecret) << stranger.status().message();
  EXPECT_EQ(cause_of(other.status()), Cause::kNoSegment) << other.status().message();
}

/// As one of an engine with very many ways.
TEST(TransferDirectory, ALongReportIsSaidInFull) {
  std::string text;
  for (int line = 0; text.size() < (6 << 20); ++line) text += "way " + std::to_string(line) + "\n";
  const Answering engine({}, text);
  const Name name =
      parse_name(write_name(engine.at(), some_answer().description.incarnation)).value();
  const auto report = ask_for_report(name, "", {}, monotonic_ns() + 60'000'000'000);
  ASSERT_TRUE(report.ok()) << report.status().message();
  EXPECT_TRUE(report.value() == text) << report.value().size();
}

/// It would copy all that it has registered.
TEST(TransferDirectory, AStrangersQuestionMakesAnEngineLookAtNothing) {
  Answering engine(secret_of(1));
  const uint64_t end_ns = monotonic_ns() + 20'000'000'000;
  const auto say = [&](const std::vector<std::byte>& question) {
    const auto bytes =
        ask(connect_to(engine.at(), end_ns).value(), question, kFrameBytesMax, end_ns);
    ASSERT_TRUE(bytes.ok()) << bytes.status().message();
    EXPECT_EQ(decode_answer(bytes.value(), secret_of(1)).value().cause, Cause::kOtherSecret);
  };
  say(encode(Question{}, secret_of(2)));
  say(seal(SealedKind::kReportQuestion, kVersion, secret_of(2), [](Writer&) {}));
  engine.end();
  EXPECT_EQ(engine.described, 0);
  EXPECT_EQ(engine.statistics().refused, 2u);
}

TEST(TransferDirectory, AnOwnerThatSaysNothingIsADeadline) {
  uint16_t port = 0;
  const Descriptor listener = listen_at({"127.0.0.1", 0}, port).value();
  const Name name = anyone_at({"127.0.0.1", port});
  const auto found = resolve(name, "", {}, monotonic_ns() + 50'000'000);
  EXPECT_EQ(cause_of(found.status()), Cause::kDeadline) << found.status().message();
}

TEST(TransferDirectory, StrangersHoldNobodyUp) {
  const fabric::Secret none;
  Answering engine(none);
  const HostAndPort at = engine.at();
  const uint64_t end_ns = monotonic_ns() + 20'000'000'000;
  const auto say = [&](const std::vector<std::byte>& bytes) {
    Descriptor socket = connect_to(at, end_ns).value();
    (void)send(socket.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
    return socket;
  };
  std::vector<Descriptor> strangers;
  strangers.push_back(say({}));                                          // says nothing
  strangers.push_back(say({std::byte{10}}));                             // half a length
  strangers.push_back(say(std::vector<std::byte>(4, std::byte{0xff})));  // 4 GiB
  strangers.push_back(say(frame(std::vector<std::byte>(100))));          // no question
  strangers.push_back(say(frame(std::vector<std::byte>(1000))));         // too long
  Name name = anyone_at(at);
  const auto answer = resolve(name, "", none, end_ns);
  EXPECT_TRUE(answer.ok()) << answer.status().message();
  name.incarnation = {9, 9};
  EXPECT_FALSE(resolve(name, "", none, end_ns).ok());
  engine.skip_ns = DirectoryServer::kHalfOpenNs;  // those who say nothing are shown out
  for (const Descriptor& stranger : strangers) {
    pollfd awaited{stranger.get(), POLLIN, 0};
    EXPECT_EQ(poll(&awaited, 1, 10'000), 1);
    std::byte byte;
    EXPECT_LE(recv(stranger.get(), &byte, 1, 0), 0);
  }
  engine.end();
  EXPECT_EQ(engine.statistics().answered, 2u);
  EXPECT_EQ(engine.statistics().refused, 5u);
}

/// Those beyond the limit wait as long as others say nothing.
TEST(TransferDirectory, WhoAsksBesideManySilentConnectionsWaitsForOneToEnd) {
  Answering engine({});
  const uint64_t end_ns = monotonic_ns() + 20'000'000'000;
  std::vector<Descriptor> silent;
  for (size_t i = 0; i < DirectoryServer::kConnectionsMax; ++i)
    silent.push_back(connect_to(engine.at(), end_ns).value());
  std::thread some_end([&] {
    usleep(300'000);
    silent.resize(silent.size() / 2);
  });
  const auto answer = resolve(anyone_at(engine.at()), "", {}, monotonic_ns() + 10'000'000'000);
  some_end.join();
  EXPECT_TRUE(answer.ok()) << answer.status().message();
}

TEST(TransferDirectory, OnlyProofCountsAsTheEndOfAnEngine) {
  uint16_t port = 0;
  Descriptor silent = listen_at({"127.0.0.1", 0}, port).value();
  constexpr uint64_t kSilentNs = 500'000'000, kAnswersNs = 20'000'000'000;
  const auto has_ended_at = [](const HostAndPort& at, const Incarnation& who, uint64_t limit_ns) {
    Name name = anyone_at(at);
    name.incarnation = who;
    return has_ended(name, secret_of(1), monotonic_ns() + limit_ns);
  };
  const Incarnation self = some_answer().description.incarnation;
  EXPECT_FALSE(has_ended_at({"127.0.0.1", port}, self, kSilentNs)) << "it is stopped, for example";
  EXPECT_FALSE(has_ended_at({"no.such.host.invalid", 1}, self, kSilentNs))
      << "its name is not known now";
  std::thread closing([&] {  // its connections are reset, or end without an answer
    pollfd awaited{silent.get(), POLLIN, 0};
    while (poll(&awaited, 1, 500) == 1) close(accept(silent.get(), nullptr, nullptr));
  });
  EXPECT_FALSE(has_ended_at({"127.0.0.1", port}, self, kSilentNs));
  closing.join();
  silent = Descriptor();
  EXPECT_TRUE(has_ended_at({"127.0.0.1", port}, self, kAnswersNs)) << "nobody listens";
  const Answering engine(secret_of(1)), stranger(secret_of(2));
  EXPECT_FALSE(has_ended_at(engine.at(), self, kAnswersNs));
  EXPECT_TRUE(has_ended_at(engine.at(), {7, 7}, kAnswersNs)) << "another engine listens";
  EXPECT_FALSE(has_ended_at(stranger.at(), self, kAnswersNs)) << "it has another secret";
}

/// Such as a server of SSH, which speaks first.
TEST(TransferDirectory, WhatIsNoEngineIsSaidToBeNone) {
  uint16_t port = 0;
  const Descriptor listener = listen_at({"127.0.0.1", 0}, port).value();
  std::atomic<bool> is_over = false;
  std::thread other([&] {
    pollfd awaited{listener.get(), POLLIN, 0};
    while (!is_over) {
      if (poll(&awaited, 1, 10) != 1) continue;
      const Descriptor socket(accept(listener.get(), nullptr, nullptr));
      (void)send(socket.get(), "SSH-2.0-x\r\n", 11, MSG_NOSIGNAL);
      std::array<std::byte, 512> question;
      (void)recv(socket.get(), question.data(), question.size(), 0);
    }
  });
  const auto found =
      resolve(anyone_at({"127.0.0.1", port}), "", {}, monotonic_after_ns(20'000'000));
  is_over = true;
  other.join();
  ASSERT_FALSE(found.ok());
  EXPECT_EQ(cause_of(found.status()), Cause::kNoSegment);
  EXPECT_NE(found.status().message().find("no engine of braid"), std::string::npos)
      << found.status().message();
  EXPECT_NE(found.status().message().find(std::to_string(port)), std::string::npos);
}

}  // namespace
}  // namespace braid::transfer
