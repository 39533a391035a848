// A staged domain, and somebody who makes up messages of its kind.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "fabric/sim/network.h"
#include "fabric/staged/domain.h"
#include "fabric/staged/records.h"
#include "fabric/staged/sealing.h"
#include "fabric/wires.h"
#include "host/random_number.h"
#include "simulation/simulation.h"
#include "support/server.h"

namespace braid::fabric {

using staged::Kind;
using staged::Record;

/// Where it is told things.
inline std::vector<std::byte> place_of(const Domain& domain) {
  return staged::read_address(domain.address()).value().place;
}

/// A wire without a staged domain in front, which says what it is told to.
class Liar {
 public:
  Liar(std::unique_ptr<Domain> wire, const Domain& victim, const Secret& secret = {})
      : wire_(std::move(wire)), victim_(place_of(victim)), sealing_(secret, wire_->address()) {
    region_ = wire_->add_region(memory_, Access::kLocal).value();
    peer_ = wire_->connect(victim_).value();
  }
  Domain& wire() { return *wire_; }
  /// False: there is no room now.
  bool say(const std::vector<Record>& records, Bytes address = {}) {
    if (is_sending_) return false;
    std::vector<std::byte> message;
    staged::append_mark(message, version);
    for (const Record& record : records) staged::append(message, record);
    message.insert(message.end(), address.begin(), address.end());
    if (version >= staged::kSealedVersion) sealing_.seal(message, victim_, line_, ++sequence_);
    return send(message);
  }
  bool send(Bytes message) {
    if (is_sending_) return false;
    said.assign(message.begin(), message.end());
    std::copy(message.begin(), message.end(), memory_.begin());
    is_sending_ = wire_->post_send(peer_, region_, Bytes(memory_).first(message.size()), kSend);
    return is_sending_;
  }
  /// Takes messages from now on.
  void listen() {
    for (size_t i = 0; i < kBuffers; ++i) (void)wire_->post_receive(region_, buffer(i), i);
  }
  void look() {
    Completion completions[16];
    for (size_t i = 0, count = wire_->poll(completions); i < count; ++i) {
      const Completion& completion = completions[i];
      if (completion.event == Event::kPosted) is_sending_ = false;
      if (completion.event != Event::kReceived) continue;
      const MutableBytes come = buffer(completion.context);
      Bytes bytes = come.first(completion.size_bytes);
      heard_version = staged::version_of(bytes).value();
      if (heard_version >= staged::kSealedVersion) bytes = sealing_.open(bytes);
      if (const auto message = staged::read_message(bytes))
        heard.insert(heard.end(), message->records.begin(), message->records.end());
      (void)wire_->post_receive(region_, come, completion.context);
    }
  }
  std::optional<Record> heard_of(Kind kind) const {
    for (const Record& record : heard)
      if (record.kind == kind) return record;
    return std::nullopt;
  }

  uint8_t version = staged::kVersions.newest;  ///< of what it says
  std::vector<std::byte> said;                 ///< the last message, as it went out
  std::vector<Record> heard;
  uint8_t heard_version = 0;  ///< of the last message

 private:
  static constexpr size_t kBuffers = 4, kBytes = 8192;
  static constexpr uint64_t kSend = 1000;
  MutableBytes buffer(size_t index) {
    return MutableBytes(memory_).subspan((index + 1) * kBytes, kBytes);
  }
  std::unique_ptr<Domain> wire_;
  const std::vector<std::byte> victim_;
  staged::Sealing sealing_;
  const uint64_t line_ = random_number();
  uint64_t sequence_ = 0;
  std::vector<std::byte> memory_ = std::vector<std::byte>((kBuffers + 1) * kBytes);
  uint32_t region_ = 0;
  uint32_t peer_ = 0;
  bool is_sending_ = false;
};

class StagedLiesTest : public braid::test::ServerTest {
 protected:
  void SetUp() override {
    ServerTest::SetUp();
    for (int host = 0; host < 2; ++host) network_.add_host([] {});
    owner_ = open_staged(1);
    use_gpu(1);
    memory_ = std::make_unique<braid::test::DeviceBuffer>(driver(), kBytes);
    const MutableBytes bytes{reinterpret_cast<std::byte*>(memory_->at()), kBytes};
    into_ = owner_->remote_range(owner_->add_region(bytes, Access::kRemoteWrite).value());
  }
  std::unique_ptr<Domain> open_wire(int host) { return network_.open_domain(host, ++places_); }
  std::unique_ptr<Domain> open_staged(int host) {
    return staged::stage(open_wire(host), {.secret = secret_}).value();
  }

  bool wait(const std::function<bool()>& until) {
    for (test::Patience patience(100'000); !patience.is_over();)
      if (look(until)) return true;
    return false;
  }
  bool look(const std::function<bool()>& until) {
    if (until()) return true;
    Completion completions[16];
    owner_->poll(completions);
    if (++looks_ % 8 == 0) usleep(1);
    if (!simulation_.step(simulation::kForever - 1))
      simulation_.advance_clock(simulation_.now() + simulation::from_us(1));
    return false;
  }
  void say(Liar& liar, const std::vector<Record>& records, Bytes address = {}) {
    ASSERT_TRUE(wait([&] {
      liar.look();
      return liar.say(records, address);
    }));
  }

  void expect_a_write_lands(Domain& writer) {
    expect_a_write_lands(writer, writer.connect(owner_->address()).value(), [] {});
  }
  void expect_a_write_lands(Domain& writer, uint32_t peer, const std::function<void()>& meanwhile) {
    std::vector<std::byte> source(100, std::byte{5});
    Write write;
    write.peer = peer;
    write.region = writer.add_region(source, Access::kLocal).value();
    write.source = source;
    write.target_address = into_.base;
    write.target_key = into_.key;
    ASSERT_TRUE(writer.post_write(write));
    meanwhile();
    std::optional<bool> ended;
    ASSERT_TRUE(wait([&] {
      Completion completion;
      if (writer.poll({&completion, 1}) > 0) ended = completion.ok;
      return ended.has_value();
    }));
    EXPECT_TRUE(*ended);
  }

  static constexpr uint64_t kBytes = 4096;
  Secret secret_;
  simulation::Simulation simulation_{{}};
  sim::Network network_{simulation_, 17, {}};
  uint64_t places_ = 0, looks_ = 0;
  std::unique_ptr<Domain> owner_;
  std::unique_ptr<braid::test::DeviceBuffer> memory_;
  RemoteRange into_;
};

}  // namespace braid::fabric
