// Makes inputs for fuzz_target.cpp without clang: valid messages, altered, cut, spliced, from a
// seed.
//
//   fabric_fuzz [--runs N] [--seed S]      S, S + 1, ...: each is a run's seed; one alone: --runs 1
#include <malloc.h>

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "fabric/fuzz_alter.h"
#include "fabric/liar.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

namespace {

using namespace braid::fabric;
using sim::Random;
using test::alter;
using test::Input;

Input input_of(const std::vector<std::byte>& bytes) {
  Input input(1, 1);
  for (const std::byte byte : bytes) input.push_back(static_cast<uint8_t>(byte));
  return input;
}

/// One of each kind, in all versions, as the liar's connection would carry it.
std::vector<Input> corpus() {
  Address address{test::Liar::kEngine, {}, {}};
  address.rails.push_back({"simulated", std::vector<std::byte>(8, std::byte{50}), {0, 1}});
  const std::vector<std::byte> door(12, std::byte{3});
  std::vector<Input> inputs;
  for (const uint16_t version : {uint16_t{1}, uint16_t{2}, kVersion}) {
    address.version = version;
    const Doors doors{{door, {door, door}}};
    inputs.push_back(input_of(encode(address)));
    inputs.push_back(input_of(encode(Descriptor{1, 666, 3, 4096, {{1, 2}}, 77, version})));
    const decltype(Message::body) bodies[] = {Hello{address, 4, doors, {}},
                                              Welcome{4, doors, {}},
                                              Data{{std::byte{1}}},
                                              Credit{1},
                                              Revoke{5, 2},
                                              Revoked{5, true},
                                              Beat{},
                                              Goodbye{},
                                              RailsRetired{2, 1},
                                              DataWithBytes{{std::byte{1}}, 3}};
    for (size_t i = 0; i < std::size(bodies); ++i) {
      if (version == 1 && i > 5) continue;
      Message message{test::Liar::kEngine, 1, bodies[i], {test::Liar::kSession, 1, 2}, version};
      const auto* data = std::get_if<DataWithBytes>(&message.body);
      const std::vector<std::byte> following(data == nullptr ? 0 : data->following_bytes);
      inputs.push_back(input_of(encode(message, {}, following)));
    }
  }
  return inputs;
}

uint64_t heap_bytes() { return mallinfo2().uordblks; }

}  // namespace

int main(int count, char** words) {
  uint64_t runs = 100'000, seed = 1;
  for (int i = 1; i + 1 < count; i += 2) {
    if (std::strcmp(words[i], "--runs") == 0) runs = std::strtoull(words[i + 1], nullptr, 10);
    if (std::strcmp(words[i], "--seed") == 0) seed = std::strtoull(words[i + 1], nullptr, 10);
  }
  const std::vector<Input> all = corpus();
  std::printf("seeds %zu to %zu\n", size_t{seed}, size_t{seed + runs - 1});
  std::fflush(stdout);
  const auto begin = std::chrono::steady_clock::now();
  uint64_t settled_bytes = 0;
  for (uint64_t run = 0; run < runs; ++run) {
    Random random(seed + run);
    Input input = all[random.below(all.size())];
    for (uint64_t changes = random.between(1, 5); changes > 0; --changes) {
      alter(input, all, random);
      if (random.chance(0.8)) input[0] = 1;
    }
    LLVMFuzzerTestOneInput(input.data(), input.size());
    if (run == runs / 2) settled_bytes = heap_bytes();
  }
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
  std::printf("%zu inputs in %.1f s\n", size_t{runs}, took.count());
  constexpr uint64_t kGrowthBytesMax = 4 << 20;
  if (runs > 1000 && heap_bytes() > settled_bytes + kGrowthBytesMax) {
    std::printf("failed: memory grows: %zu bytes, then %zu\n", size_t{settled_bytes},
                size_t{heap_bytes()});
    return 1;
  }
  return 0;
}
