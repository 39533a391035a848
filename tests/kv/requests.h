// Requests that do not fit on the GPU and run to their ends by rotation: the least engine there is.
// Each step reads all that its requests have, which is verified, and writes half a block of each.
#pragma once

#include <algorithm>
#include <random>
#include <set>
#include <span>
#include <vector>

#include "kv/rig.h"

namespace braid::kv::test {

inline constexpr size_t kRequests = 6;
inline constexpr size_t kBlocksOfRequest = 4;
inline constexpr int kStepsWithFaults = 120;
inline constexpr int kStepsMost = 2000;
inline constexpr int kPatience = 12;  // steps without progress, then a request is computed again

// Each block is written twice, so that a request may be preempted with its last block half full.
struct Request {
  uint64_t number;
  std::vector<BlockId> blocks{};
  uint64_t last_version = 0;  // of the last block: 1, half full; 2, full
  bool runs = false;
  bool is_done = false;
  int waits = 0;  // so many steps
};

class RequestsTest : public KvTest {
 protected:
  void begin(uint64_t seed, const Opening& opening) {
    seed_ = seed;
    random_.seed(seed);
    lag_.seed(seed);
    open(opening);
    for (uint64_t number = 1; number <= kRequests; ++number) requests_.push_back({number});
  }
  // Steps while `go_on` says so.
  template <typename GoOn>
  void run(const GoOn& go_on) {
    for (int step = 0; go_on(step); ++step) {
      let_remote_ranks_work();
      see(rotation().poll());
      finish();
      rotate();
      compute();
      if (step % 16 == 0) see(settle());
      ASSERT_FALSE(HasFailure()) << "seed " << seed_ << ", step " << step;
    }
  }
  void run_with_faults() {
    run([](int step) { return step < kStepsWithFaults; });
  }
  void finish_without_faults() {
    is_endless_ = false;
    faults_ = {};
    remote_faults_ = {};
    checker_.refuse_every(0);
    run([&](int step) { return step < kStepsMost && !all_done(); });
    EXPECT_TRUE(all_done()) << "seed " << seed_;
    settle();
    EXPECT_EQ(rotation().table().size(), 0u);
    EXPECT_EQ(rotation().table().gpu().free_count(), rotation().table().gpu().size());
    EXPECT_EQ(rotation().table().host().free_count(), rotation().table().host().size());
  }
  bool all_done() const {
    return std::all_of(requests_.begin(), requests_.end(),
                       [](const Request& request) { return request.is_done; });
  }

  void abort_one() {
    Request& request = requests_[random_() % requests_.size()];
    for (const BlockId id : request.blocks) aborted_.insert(state(id));
    start_again(request);
  }

  std::vector<Request> requests_;
  std::set<BlockState> aborted_;  // in which states blocks were
  std::set<Refusal> refusals_;    // of what was asked to move
  uint64_t failures_ = 0;         // of blocks, seen by polling
  bool is_endless_ = true;        // who has finished begins again
  uint64_t seed_ = 0;
  std::mt19937_64 random_;

 private:
  static BlockId name(const Request& request, size_t block) {
    return BlockId{request.number * kBlocksOfRequest + block};
  }
  uint64_t version(const Request& request, size_t block) const {
    return block + 1 == request.blocks.size() ? request.last_version : 2;
  }

  void see(const Report& report) {
    expect_loaded(report);
    for (const BlockId id : report.failed) see_failure(id);
  }

  // Whoever waits for a block to be loaded hears of it, also if it was there all along.
  void expect_loaded(const Report& report) {
    for (const BlockId id : there_)
      if (rotation().table().find(id) != nullptr) {
        EXPECT_NE(std::ranges::find(report.loaded, id), report.loaded.end())
            << "a load of a block that was " << state_name(state(id)) << " is never reported";
      }
    there_.clear();
  }
  void load_what_is_there(const std::vector<BlockId>& load, const Submitted& submitted) {
    const std::span loaded(load.begin(), load.end() - static_cast<ptrdiff_t>(submitted.loads_left));
    for (const BlockId id : loaded)
      if (rotation().table().find(id)->is_on_gpu()) there_.push_back(id);
  }

  void seal(BlockId id) { EXPECT_EQ(rotation().seal(id), Refusal::kNone); }
  void stop(Request& request) {
    if (!request.runs) return;
    for (const BlockId id : request.blocks) EXPECT_EQ(rotation().end_use(id), Refusal::kNone);
    request.runs = false;
  }
  void start_again(Request& request) {
    stop(request);
    for (const BlockId id : request.blocks) EXPECT_EQ(rotation().release(id), Refusal::kNone);
    request.blocks.clear();
    request.last_version = 0;
    request.waits = 0;
  }

  // What was computed from a block that did not come is computed again.
  void see_failure(BlockId id) {
    ++failures_;
    discard_readings(id);
    for (Request& request : requests_)
      if (std::ranges::find(request.blocks, id) != request.blocks.end() &&
          state(id) != BlockState::kSealed)
        return start_again(request);
  }

  void finish() {
    for (Request& request : requests_) {
      const bool is_full = request.blocks.size() == kBlocksOfRequest && request.last_version == 2;
      if (request.is_done || !is_full) continue;
      start_again(request);
      request.is_done = !is_endless_;
    }
  }

  // One that runs is preempted now and then; those that wait come back, if there is room.
  void rotate() {
    std::vector<BlockId> evict, load;
    Request& victim = requests_[random_() % requests_.size()];
    if (victim.runs && random_() % 2 == 0) {
      stop(victim);
      if (state(victim.blocks.back()) == BlockState::kDirty) seal(victim.blocks.back());
    }
    for (Request& request : requests_) {
      if (request.runs || request.is_done || request.blocks.empty()) continue;
      auto& list = &request == &victim || request.waits < 3 ? evict : load;
      list.insert(list.end(), request.blocks.begin(), request.blocks.end());
    }
    const auto submitted =
        rotation().submit({.evict = evict,
                           .load = load,
                           .landing = random_() % 2 == 0 ? Landing::kOrdered : Landing::kPolled});
    for (const auto& [id, refusal] : submitted.refused) refusals_.insert(refusal);
    load_what_is_there(load, submitted);
    for (Request& request : requests_)
      if (!request.runs && !request.is_done) resume(request);
  }

  void resume(Request& request) {
    if (++request.waits > kPatience) return start_again(request);
    for (const BlockId id : request.blocks)
      if (state(id) == BlockState::kLost) return start_again(request);
    size_t used = 0;
    while (used < request.blocks.size() &&
           rotation().begin_use(request.blocks[used]) == Refusal::kNone)
      ++used;
    request.runs = used == request.blocks.size();
    if (request.runs && used > 0 && request.last_version == 1)
      request.runs = rotation().reopen(request.blocks.back()).ok();
    if (request.runs) {
      request.waits = 0;
      return;
    }
    while (used > 0) EXPECT_EQ(rotation().end_use(request.blocks[--used]), Refusal::kNone);
  }

  // Every request that runs reads what it has, and writes half a block.
  void compute() {
    rotation().begin_step();
    for (Request& request : requests_) {
      if (!request.runs) continue;
      for (size_t i = 0; i < request.blocks.size(); ++i)
        read(request.blocks[i], name(request, i), version(request, i));
      if (request.blocks.empty() || request.last_version == 2) {
        const auto created = rotation().create();
        if (!created.ok()) {
          if (request.blocks.empty()) request.runs = false;
          continue;
        }
        request.blocks.push_back(created.id);
        request.last_version = 0;
      }
      write(request.blocks.back(), name(request, request.blocks.size() - 1),
            ++request.last_version);
      if (request.last_version == 2) seal(request.blocks.back());
    }
    while (!end_step().ok()) continue;
  }

  std::vector<BlockId> there_;  // on the GPU when they were to be loaded, and not reported yet
};

}  // namespace braid::kv::test
