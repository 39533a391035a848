// Rails that a scheduler alone posts to: a test ends what they are given.
#pragma once

#include <variant>
#include <vector>

#include "transfer/scheduler.h"

namespace braid::transfer {

inline constexpr uint64_t kMs = 1'000'000;
inline constexpr uint64_t kPeer = 7;

inline RequestSpec request_of(uint64_t id, uint64_t size_bytes, uint32_t ways = 0) {
  RequestSpec request;
  request.id = id;
  request.peer = kPeer;
  request.size_bytes = size_bytes;
  request.ways = ways;
  return request;
}

/// Rails of 10 GB/s, each with one path to one peer.
struct Rails {
  explicit Rails(size_t count, SchedulerOptions options = {}) : scheduler(options) {
    std::vector<Way> ways;
    for (size_t i = 0; i < count; ++i) {
      const uint32_t local = scheduler.add_rail({10}), remote = scheduler.add_rail({10});
      ways.push_back({scheduler.add_path({kPeer, local, remote, 10, 5}), 0});
    }
    scheduler.add_ways(ways);
  }
  void add(uint64_t id, uint64_t size_bytes, uint64_t now_ns = 0) {
    scheduler.add(request_of(id, size_bytes), now_ns);
  }
  std::vector<Posting> post(uint64_t now_ns) {
    std::vector<Posting> postings;
    while (const auto posting = scheduler.next(now_ns)) postings.push_back(*posting);
    return postings;
  }
  template <typename Event>
  std::vector<Event> events() {
    std::vector<Event> wanted;
    while (const auto event = scheduler.next_event())
      if (const Event* one = std::get_if<Event>(&*event)) wanted.push_back(*one);
    return wanted;
  }

  Scheduler scheduler;
};

}  // namespace braid::transfer
