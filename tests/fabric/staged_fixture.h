// A writer and an owner over a wire that has a staged or a local domain, as two processes with GPUs
// of the emulated server.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "fabric/engine.h"
#include "fabric/wires.h"
#include "support/asleep.h"
#include "support/gate.h"
#include "support/lock_holder.h"

namespace braid::fabric {

inline const test::WireKind& kind_named(
    const std::string& name, const std::vector<test::WireKind>& kinds = test::wire_kinds()) {
  for (const test::WireKind& kind : kinds)
    if (kind.name == name) return kind;
  throw std::runtime_error("no wire " + name);
}

class StagedTest : public braid::test::ServerTest {
 protected:
  void SetUp() override {
    ServerTest::SetUp();
    wire_ = kind_named(wire_name_).make();
    writer_ = wire_->open(0);
    owner_ = wire_->open(1);
    peer_ = writer_->connect(owner_->address()).value();
  }

  bool wait(const std::function<bool()>& until) {
    for (test::Patience patience(200'000); !patience.is_over();)
      if (look(until)) return true;
    return false;
  }
  bool wait(const std::function<bool()>& until, int looks_max) {
    for (int i = 0; i < looks_max; ++i)
      if (look(until)) return true;
    return false;
  }
  /// Long enough for all that does not wait for the driver: other threads have done what they can.
  void look_on() {
    constexpr int kRounds = 3, kLooks = 1000;
    for (int round = 0; round < kRounds; ++round) {
      wait([] { return false; }, kLooks);
      (void)wait(braid::test::are_others_asleep);
    }
  }
  bool look(const std::function<bool()>& until) {
    if (until()) return true;
    if (writer_ != nullptr) poll(*writer_);
    poll(*owner_);
    pass_time();
    return false;
  }
  virtual void pass_time() { wire_->pass_time(); }
  void poll(Domain& domain) {
    Completion completions[16];
    const size_t count = domain.poll(completions);
    for (size_t i = 0; i < count; ++i) {
      if (completions[i].event == Event::kPosted)
        ended_[completions[i].context] = completions[i].ok;
      if (completions[i].event == Event::kImmediate) ++immediates_[completions[i].immediate];
    }
  }

  /// A write of all of `source`, with its context as the immediate.
  void post(uint32_t region, MutableBytes source, RemoteRange target, uint64_t offset,
            uint64_t context) {
    Write write;
    write.peer = peer_;
    write.region = region;
    write.source = source;
    write.target_address = target.base + offset;
    write.target_key = target.key;
    write.immediate = static_cast<uint32_t>(context);
    write.context = context;
    ASSERT_TRUE(wait([&] { return writer_->post_write(write); }));
  }

  /// With a domain of its own on that side of the wire.
  std::unique_ptr<Engine> open_engine(int side, uint64_t number) {
    EngineOptions options;
    options.engine = number;
    std::vector<std::unique_ptr<Domain>> rails;
    rails.push_back(wire_->open(side));
    return Engine::open(std::move(rails), options).value();
  }

  /// From now on no call gets the lock of that context, until `release`.
  void hold() {
    use_gpu(held_gpu_);
    CUdeviceptr memory = 0;
    MUST(driver(), cuMemAlloc(&memory, 4096));
    gate_.emplace(driver());
    gate_->hold(new_stream());
    holder_.emplace(driver(), context(held_gpu_), memory);
  }
  void release() {
    gate_->open();
    holder_.reset();
  }

  std::string wire_name_ = "simulated_software_gpu_to_gpu";
  int held_gpu_ = 1;  // whose context makes the last copy: the owner's
  std::unique_ptr<test::Wire> wire_;
  std::unique_ptr<Domain> writer_, owner_;
  uint32_t peer_ = 0;
  std::map<uint64_t, bool> ended_;
  std::map<uint32_t, int> immediates_;
  std::optional<braid::test::Gate> gate_;
  std::optional<braid::test::LockHolder> holder_;
};

/// A write that has gone all the way sets everything up: rings, streams, pinned memory.
class WarmTest : public StagedTest {
 protected:
  static constexpr uint64_t kBytes = 4 << 20;
  void SetUp() override {
    StagedTest::SetUp();
    source_ = wire_->memory(0, kBytes);
    target_ = wire_->memory(1, kBytes);
    source_->put(bytes_);
    from_ = writer_->add_region(source_->bytes(), Access::kLocal).value();
    into_ = owner_->add_region(target_->bytes(), Access::kRemoteWrite).value();
    range_ = owner_->remote_range(into_);
    post(from_, source_->bytes().first(1), range_, 0, 1);
    ASSERT_TRUE(wait([&] { return ended_.count(1) == 1 && immediates_[1] == 1; }));
  }

  const std::vector<std::byte> bytes_ = test::some_bytes(kBytes, 1);
  std::unique_ptr<test::Memory> source_, target_;
  uint32_t from_ = 0, into_ = 0;
  RemoteRange range_;
};

}  // namespace braid::fabric
