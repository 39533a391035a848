// Two ends of a wire of every kind, for the tests of the contract (fabric/domain.h).
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <memory>
#include <vector>

#include "fabric/wires.h"

namespace braid::fabric::test {

inline constexpr int kLooksMax = 2'000'000;

/// One end, and all that has come to it.
struct End {
  std::unique_ptr<Domain> domain;
  std::map<uint64_t, std::vector<bool>> ended;  // by context
  std::map<uint64_t, uint64_t> received_bytes;  // by context
  std::map<uint32_t, int> immediates;
  int immediate_count = 0;

  void poll() {
    Completion completions[8];
    const size_t count = domain->poll(completions);
    for (size_t i = 0; i < count; ++i) {
      const Completion& completion = completions[i];
      if (completion.event == Event::kPosted) ended[completion.context].push_back(completion.ok);
      if (completion.event == Event::kReceived && completion.ok)
        received_bytes[completion.context] = completion.size_bytes;
      if (completion.event == Event::kImmediate) {
        immediates[completion.immediate] += static_cast<int>(completion.slices);
        immediate_count += static_cast<int>(completion.slices);
      }
    }
  }
};

class ContractTest : public testing::TestWithParam<WireKind> {
 protected:
  void SetUp() override {
    wire_ = GetParam().make();
    if (IsSkipped()) return;  // this machine has no such wire
    for (int side = 0; side < 2; ++side) ends_[side].domain = wire_->open(side);
    const Result<uint32_t> peer = writer().domain->connect(target().domain->address());
    ASSERT_TRUE(peer.ok()) << peer.status().message();
    peer_ = peer.value();
  }

  End& writer() { return ends_[0]; }
  End& target() { return ends_[1]; }

  bool wait(const std::function<bool()>& until) {
    for (Patience patience(kLooksMax); !patience.is_over();)
      if (look(until)) return true;
    return until();
  }
  bool wait(const std::function<bool()>& until, int looks_max) {
    for (int i = 0; i < looks_max; ++i)
      if (look(until)) return true;
    return until();
  }
  bool look(const std::function<bool()>& until) {
    if (until()) return true;
    for (End& end : ends_) end.poll();
    wire_->pass_time();
    return false;
  }

  Write to(RemoteRange range, uint64_t offset, uint32_t region, Bytes source, uint64_t context) {
    Write write;
    write.peer = peer_;
    write.region = region;
    write.source = source;
    write.target_address = range.base + offset;
    write.target_key = range.key;
    write.context = context;
    return write;
  }
  void post(const Write& write) {
    ASSERT_TRUE(wait([&] { return writer().domain->post_write(write); }));
  }
  std::unique_ptr<Memory> source_of(const std::vector<std::byte>& bytes) {
    auto memory = wire_->memory(0, bytes.size());
    memory->put(bytes);
    return memory;
  }
  std::unique_ptr<Memory> target_of(size_t size_bytes) { return wire_->memory(1, size_bytes); }
  uint32_t add(End& end, const std::unique_ptr<Memory>& memory, Access access) {
    return add(end, memory->bytes(), access);
  }
  uint32_t add(End& end, MutableBytes memory, Access access) {
    const Result<uint32_t> region = end.domain->add_region(memory, access);
    EXPECT_TRUE(region.ok()) << region.status().message();
    return region.ok() ? region.value() : 0;
  }

  void expect_nothing_lands(const std::unique_ptr<Memory>& memory) {
    wait([&] { return writer().ended.size() == 1; }, 20'000);
    for (const auto& [context, results] : writer().ended)
      EXPECT_EQ(results, std::vector<bool>{false}) << context;
    EXPECT_EQ(target().immediate_count, 0);
    EXPECT_EQ(memory->get(), std::vector<std::byte>(memory->bytes().size()));
  }

  std::unique_ptr<Wire> wire_;
  End ends_[2];
  uint32_t peer_ = 0;
};

}  // namespace braid::fabric::test
