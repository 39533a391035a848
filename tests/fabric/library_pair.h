// Two engines of libbraid_fabric that are connected, for tests of include/braid/fabric.h.
#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <cstddef>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "braid/fabric.h"
#include "support/eventually.h"

namespace braid::test {

class FabricPair : public testing::Test {
 protected:
  static constexpr std::chrono::seconds kLimit{60};

  void SetUp() override { open("tcp;ofi_rxm"); }

  void open(const char* provider) {
    auto owner = Fabric::open({provider, {"127.0.0.1", "127.0.0.1"}});
    ASSERT_TRUE(owner.ok()) << owner.status().message();
    owner_.emplace(std::move(owner).value());
    writer_.emplace(Fabric::open({provider, {"127.0.0.1", "127.0.0.1"}}).value());
    const auto peer = writer_->connect(owner_->address().value(), kLimit);
    ASSERT_TRUE(peer.ok()) << peer.status().message();
    owners_peer_ = peer.value();
    writers_peer_ = owner_->accept(kLimit).value().value();
  }

  /// All of `memory` is granted to the writer.
  Fabric::Target open_memory(std::vector<std::byte>& memory) {
    const auto region = owner_->add_region(memory.data(), memory.size()).value();
    const auto granted = owner_->grant(region, writers_peer_, 0, memory.size()).value();
    return writer_->open_target(granted.descriptor).value();
  }

  std::optional<Fabric> owner_, writer_;
  Fabric::Peer owners_peer_{}, writers_peer_{};
};

}  // namespace braid::test
