// Random operations on the block table against a reference model, in a world where steps and copies
// are carried out late, in any order that their streams and waits allow, by up to three ranks that
// lag behind each other.
//
//   kv_model [--operations N] [--seed S]
//
// Every 300 operations a fresh table begins. After each operation: no slot has two owners; free,
// owned and fenced ones are all; states, references and users are the model's; what the model
// allows is not refused, and what it does not is. A slot that is handed out is touched by nothing
// under way that is not waited for. A step reads the block that was written. When all is quiet:
// every block has a good copy, synced ones two, and nothing is fenced. A failure is shrunk to the
// fewest operations that still fail, which are printed with their seed.
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <random>

#include "kv/model_world.h"

namespace braid::kv::test {
namespace {

constexpr size_t kEpisode = 300;
// Of each Kind, in its order. Nothing moves unless there is much of time.
constexpr std::array<double, kNames.size()> kWeights = {8,  8,  4, 6, 8, 8,  8,  3,    10,
                                                        10, 10, 4, 2, 1, 40, 10, 0.05, 0.02};

struct Episode {
  BlockTable::Slots slots;
  size_t ranks;
  std::vector<Operation> operations;
};

Episode episode(uint64_t seed) {
  std::mt19937_64 random(seed);
  std::discrete_distribution<int> kinds(kWeights.begin(), kWeights.end());
  Episode episode{{1 + static_cast<uint32_t>(random() % kMostSlots),
                   1 + static_cast<uint32_t>(random() % kMostSlots)},
                  1 + random() % 3,
                  {}};
  for (size_t i = 0; i < kEpisode; ++i)
    episode.operations.push_back({static_cast<Kind>(kinds(random)), static_cast<uint32_t>(random()),
                                  static_cast<uint32_t>(random())});
  return episode;
}

std::string what_is_wrong(const Episode& episode) {
  return World(episode.slots, episode.ranks).run(episode.operations);
}

// Leaves out ever smaller pieces, as long as what is left still fails.
Episode shrink(Episode episode) {
  for (size_t piece = episode.operations.size() / 2; piece > 0;) {
    bool has_shrunk = false;
    for (size_t at = 0; at + piece <= episode.operations.size();) {
      Episode fewer = episode;
      const auto first = fewer.operations.begin() + static_cast<std::ptrdiff_t>(at);
      fewer.operations.erase(first, first + static_cast<std::ptrdiff_t>(piece));
      if (what_is_wrong(fewer).empty()) {
        at += piece;
      } else {
        episode = std::move(fewer);
        has_shrunk = true;
      }
    }
    if (!has_shrunk) piece /= 2;
  }
  return episode;
}

int run(uint64_t operations, uint64_t first_seed) {
  for (uint64_t done = 0, seed = first_seed; done < operations; done += kEpisode, ++seed) {
    const Episode all = episode(seed);
    if (what_is_wrong(all).empty()) continue;
    const Episode fewest = shrink(all);
    std::printf("failed: seed %llu, %u slots on the GPU, %u on the host, %zu ranks: %s\n",
                static_cast<unsigned long long>(seed), fewest.slots.gpu, fewest.slots.host,
                fewest.ranks, what_is_wrong(fewest).c_str());
    for (const Operation& operation : fewest.operations)
      std::printf("  %s, block %u, choice %u\n", kNames[static_cast<size_t>(operation.kind)],
                  operation.block, operation.choice);
    std::printf("replay: kv_model --operations 1 --seed %llu\n",
                static_cast<unsigned long long>(seed));
    return 1;
  }
  std::printf("%llu operations from seed %llu: no violation\n",
              static_cast<unsigned long long>(operations),
              static_cast<unsigned long long>(first_seed));
  return 0;
}

}  // namespace
}  // namespace braid::kv::test

namespace {

// A whole number of at least 1, also as 1e8.
std::optional<uint64_t> count_of(const char* word) {
  char* end = nullptr;
  const double number = std::strtod(word, &end);
  const bool is_whole = number >= 1 && number <= 0x1p53 && number == std::floor(number);
  if (end == word || *end != '\0' || !is_whole) return std::nullopt;
  return static_cast<uint64_t>(number);
}

}  // namespace

int main(int count, char** words) {
  std::optional<uint64_t> operations = 1'000'000, seed = 1;
  for (int i = 1; i + 1 < count; i += 2) {
    if (std::strcmp(words[i], "--operations") == 0)
      operations = count_of(words[i + 1]);
    else if (std::strcmp(words[i], "--seed") == 0)
      seed = count_of(words[i + 1]);
    else
      count = 0;
  }
  if (count % 2 == 0 || !operations || !seed) {
    std::fprintf(stderr, "kv_model [--operations N] [--seed S]\n");
    return 2;
  }
  return braid::kv::test::run(*operations, *seed);
}
