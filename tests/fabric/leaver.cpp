// The other processes of exit_test.cpp: each ends while its engine is open and writes.
//
//   fabric_leaver PROVIDER ADDRESS global|leaked|waiting
//
// It connects to the address (hexadecimal digits), gets a descriptor, says so, is answered, begins
// writes, and returns from `main`. The engine is a global, which is destroyed meanwhile, or nobody
// destroys it; with `waiting`, a thread of the program is in a call then.
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "braid/fabric.h"
#include "fabric/order.h"

namespace {

using braid::Fabric;
using std::chrono::seconds;

constexpr seconds kLimit{60};
constexpr size_t kWrites = 32;

std::optional<Fabric> global;

template <typename T>
T must(braid::Result<T> result) {
  if (result.ok()) return std::move(result).value();
  std::fprintf(stderr, "leaver: %s\n", result.status().message().c_str());
  std::_Exit(3);
}

}  // namespace

int main(int count, char** words) {
  if (count != 4) return 2;
  const std::string how = words[3];
  Fabric opened = must(Fabric::open({words[1], {"127.0.0.1"}}));
  Fabric* fabric = how == "global" ? &global.emplace(std::move(opened))
                                   : new Fabric(std::move(opened));  // owner: nobody
  const auto peer = must(fabric->connect(braid::fabric::test::from_hex(words[2]), kLimit));
  const auto message = must(fabric->receive(kLimit));
  if (!message) return 4;
  const auto target = must(fabric->open_target(message->bytes));
  auto* memory = new std::vector<std::byte>(1 << 20, std::byte{9});  // owner: nobody
  const auto region = must(fabric->add_region(memory->data(), memory->size()));
  if (!fabric->send(peer, Fabric::ByteList(1)).ok()) return 5;
  if (!must(fabric->receive(kLimit))) return 6;  // what was sent has arrived
  if (how == "waiting")
    std::thread([fabric] {
      for (;;) (void)fabric->receive(kLimit);
    }).detach();
  for (size_t i = 0; i < kWrites; ++i)
    must(fabric->write(region, target, {0, 0, memory->size()}, {}, kLimit));
  return 0;
}
