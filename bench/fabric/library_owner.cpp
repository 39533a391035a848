#include "bench/fabric/library_owner.h"

#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstring>
#include <limits>
#include <string>
#include <utility>

namespace braid::bench {
namespace {

constexpr std::chrono::seconds kLimit{60};
constexpr std::chrono::milliseconds kLook{1};

}  // namespace

Fabric open_fabric(const char* provider, int rails) {
  Fabric::Options options;
  options.provider = provider;
  for (int i = 1; i <= rails; ++i) options.addresses.push_back("127.0.0." + std::to_string(i));
  // Other hosts reach some providers at any address. All that they could write is the benchmark's
  // own memory.
  options.allow_unauthenticated = true;
  Result<Fabric> opened = Fabric::open(options);
  if (!opened.ok()) {
    std::fprintf(stderr, "%s: %s\n", provider, opened.status().message().c_str());
    _exit(1);
  }
  return std::move(opened).value();
}

void LibraryOwner::grant(std::span<std::byte> memory) {
  const Fabric::Peer peer = fabric_.accept(kLimit).value().value();
  const auto region = fabric_.add_region(memory.data(), memory.size()).value();
  const auto granted = fabric_.grant(region, peer, 0, memory.size()).value();
  written_ = fabric_.acquire_immediate().value();
  const Invitation invitation{written_, fabric_.acquire_immediate().value()};
  Fabric::ByteList message(sizeof invitation);
  std::memcpy(message.data(), &invitation, sizeof invitation);
  message.insert(message.end(), granted.descriptor.begin(), granted.descriptor.end());
  (void)fabric_.send(peer, message);
  const auto answer = fabric_.receive(kLimit).value().value();
  Fabric::Immediate there = 0;
  std::memcpy(&there, answer.bytes.data(), sizeof there);
  group_ = fabric_.add_group({{peer, {}, there, invitation.barrier}}).value();
}

void LibraryOwner::look() {
  (void)fabric_.wait_count(written_, std::numeric_limits<uint64_t>::max(), kLook);
}

void LibraryOwner::begin_barrier() { barrier_ = fabric_.barrier(group_, kLimit).value(); }

void LibraryOwner::end_barrier() {
  (void)fabric_.wait(barrier_, kLimit);
  fabric_.forget(barrier_);
}

}  // namespace braid::bench
