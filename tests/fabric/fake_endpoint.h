// A domain that does what the test says, for what stands between an engine and its wire.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <deque>
#include <map>
#include <optional>
#include <span>
#include <vector>

#include "fabric/domain.h"

namespace braid::fabric {

/// An endpoint that keeps what is posted until the test ends it.
class FakeEndpoint final : public Domain {
 public:
  explicit FakeEndpoint(uint8_t number) : name_{std::byte{number}, std::byte{0}} {
    traits_.provider = "fake";
    traits_.batched_writes_max = 8;
  }

  const Traits& traits() const override { return traits_; }
  Bytes address() const override { return Bytes(name_).first(1); }
  Result<uint32_t> add_region(MutableBytes, Access) override { return add({7, next_}); }
  RemoteRange remote_range(uint32_t region) const override { return regions.at(region); }
  void remove_region(uint32_t region) override { regions.erase(region); }
  Result<uint32_t> connect(Bytes address) override {
    connected.emplace_back(address.begin(), address.end());
    return static_cast<uint32_t>(100 + connected.size());
  }
  void disconnect(uint32_t peer) override { disconnected.push_back(peer); }
  void abandon(uint32_t peer, Absence) override { abandoned.push_back(peer); }
  Result<uint32_t> open_door() override { return doors++; }
  Bytes door_address(uint32_t) const override { return name_; }
  Result<uint32_t> add_door_region(uint32_t, MutableBytes) override { return add({8, next_}); }
  Result<uint32_t> add_twin_region(std::optional<uint32_t>, MutableBytes,
                                   const RemoteRange& twin) override {
    return refuses_twins ? Result<uint32_t>(Status::error("no room")) : add(twin);
  }
  void close_door(uint32_t) override {}
  Drain drain_door(uint32_t) const override { return drains; }
  bool post_write(const Write& write) override {
    if (is_full) return false;
    ++taken;
    writes.push_back(write);
    return true;
  }
  size_t post_writes(std::span<const Write> all) override {
    batches.push_back(all.size());
    return Domain::post_writes(all.first(std::min(all.size(), takes_at_once)));
  }
  bool post_send(uint32_t, uint32_t, Bytes, uint64_t context) override {
    sends.push_back(context);
    return true;
  }
  bool post_receive(uint32_t, MutableBytes, uint64_t context) override {
    receives.push_back(context);
    return true;
  }
  size_t poll(std::span<Completion> room) override {
    const size_t count = std::min(room.size(), ended.size());
    std::copy_n(ended.begin(), count, room.begin());
    ended.erase(ended.begin(), ended.begin() + static_cast<std::ptrdiff_t>(count));
    return count;
  }

  void end_all(bool ok) {
    for (const Write& write : writes) ended.push_back({Event::kPosted, ok, 0, 0, write.context});
    writes.clear();
  }

  std::atomic<bool> is_full = false;
  std::atomic<size_t> taken = 0;  // writes
  bool refuses_twins = false;
  size_t takes_at_once = 100;
  Drain drains = Drain::kOver;
  uint32_t doors = 0;
  std::map<uint32_t, RemoteRange> regions;
  std::vector<std::vector<std::byte>> connected;
  std::vector<uint32_t> disconnected, abandoned;
  std::vector<Write> writes;
  std::vector<size_t> batches;
  std::vector<uint64_t> sends, receives;
  std::deque<Completion> ended;

 private:
  uint32_t add(RemoteRange range) {
    regions[next_] = range;
    return next_++;
  }
  Traits traits_;
  std::array<std::byte, 2> name_;
  uint32_t next_ = 0;
};

}  // namespace braid::fabric
