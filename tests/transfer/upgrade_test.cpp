// A rolling upgrade: engines of this version and of the one before, in both roles, replaced one
// after another under load. The owner is the same program with the other library
// (BRAID_PREVIOUS_LIBRARY), which speaks the version before alone.
#include <algorithm>
#include <array>

#include "base/clock.h"
#include "transfer/directory/resolve.h"
#include "transfer/owner.h"

namespace braid::transfer::test {
namespace {

using Cause = Transfer::Cause;
constexpr size_t kBytes = 1 << 20;

enum class Version { kPrevious, kThis };

std::unique_ptr<Owner> start(Version version) {
  if (version == Version::kPrevious) setenv("LD_LIBRARY_PATH", BRAID_PREVIOUS_LIBRARY, 1);
  auto owner = std::make_unique<Owner>(
      std::vector<std::string>{"provider=tcp;ofi_rxm", "bytes=" + std::to_string(kBytes)});
  unsetenv("LD_LIBRARY_PATH");
  EXPECT_EQ(owner->addresses.size(), 4u) << owner->name;
  return owner;
}

uint16_t spoken_by(const Owner& owner) {
  const auto end_ns = static_cast<uint64_t>(std::chrono::nanoseconds(10s).count());
  const auto found = resolve(parse_name(owner.name).value(), {}, fabric::Secret(),
                             monotonic_after_ns(end_ns / 1000));
  EXPECT_TRUE(found.ok()) << found.status().message();
  return found.ok() ? found.value().version : 0;
}

TEST(TransferUpgrade, TheOtherLibraryIsOfTheVersionBefore) {
  EXPECT_EQ(spoken_by(*start(Version::kPrevious)),
            std::max<uint16_t>(kVersion - 1, kVersionOldest));
  EXPECT_EQ(spoken_by(*start(Version::kThis)), kVersion);
}

TEST(TransferUpgrade, ThisVersionReadsAndWritesAtAnOlderOwner) {
  const auto owner = start(Version::kPrevious);
  Transfer::Options options;
  options.providers = {"tcp;ofi_rxm"};
  Initiator me(*owner, options, kBytes);
  fill(me.memory, 1);
  ASSERT_EQ(me.run({me.write(owner->addresses[Owner::kBoth], kBytes)}), std::vector{Cause::kDone});
  EXPECT_EQ(owner->check(Owner::kBoth, 1, 0, kBytes), "right");
  owner->fill(Owner::kRead, 2);
  ASSERT_EQ(me.run({me.read(owner->addresses[Owner::kRead], kBytes)}), std::vector{Cause::kDone});
  EXPECT_EQ(wrong_at(me.memory, 2), std::nullopt);
  me.memory.assign(kBytes, {});
  ASSERT_EQ(me.run({me.read(owner->addresses[Owner::kRead], 64)}), std::vector{Cause::kDone});
  EXPECT_EQ(wrong_at(std::span(me.memory).first(64), 2), std::nullopt)
      << "small reads, as the older owner knows them";
  EXPECT_EQ(me.run({me.write(owner->addresses[Owner::kRead], kBytes)}),
            std::vector{Cause::kNotAllowed});
}

/// Engines in a ring: each writes to the next one, on and on.
struct Ring {
  static constexpr size_t kCount = 4;

  Ring() {
    for (auto& owner : owners) owner = start(Version::kPrevious);
    for (size_t i = 0; i < kCount; ++i) load(i);
  }
  static size_t next(size_t i) { return (i + 1) % kCount; }
  static size_t before(size_t i) { return (i + kCount - 1) % kCount; }
  void load(size_t i) {
    owners[i]->fill(Owner::kRead, 100 + i);  // what it writes
    const Owner& to = *owners[next(i)];
    EXPECT_EQ(owners[i]->ask("load " + to.name + " " + std::to_string(to.addresses[Owner::kWrite]) +
                             " " + std::to_string(kBytes) + " 1 2"),
              "loading");
  }
  /// Once it has written all there, which under load may take a while, and it is still all there.
  void unload(size_t i) {
    const auto check = [&] { return owners[next(i)]->check(Owner::kWrite, 100 + i, 0, kBytes); };
    EXPECT_TRUE(eventually([&] { return check() == "right"; })) << check();
    EXPECT_EQ(owners[i]->ask("unload"), "over");
    EXPECT_EQ(check(), "right");
  }
  /// Who writes there stops before it, and begins again; the others go on.
  void replace(size_t i) {
    unload(before(i));
    unload(i);
    owners[i]->tell("leave");
    owners[i]->end(0);
    owners[i] = start(Version::kThis);
    load(i);
    load(before(i));
  }
  std::vector<uint64_t> moved() {
    std::vector<uint64_t> all;
    for (const auto& owner : owners) all.push_back(std::stoull(owner->ask("moved")));
    return all;
  }

  std::array<std::unique_ptr<Owner>, kCount> owners;
};

TEST(TransferUpgrade, OneAfterAnotherIsReplacedUnderLoadAndNothingFails) {
  Ring ring;
  for (size_t i = 0; i < Ring::kCount; ++i) {
    auto then = ring.moved();
    then[i] = 0;
    ring.replace(i);
    for (size_t j = 0; j < Ring::kCount; ++j)
      EXPECT_TRUE(eventually([&] { return ring.moved()[j] > then[j]; }))
          << "engine " << j << " after " << i;
  }
  for (size_t i = 0; i < Ring::kCount; ++i) ring.unload(i);
}

}  // namespace
}  // namespace braid::transfer::test
