#pragma once

#include <algorithm>
#include <optional>

#include "fabric/world.h"

namespace braid::fabric::test {

inline constexpr size_t kPagesOfAWriteMax = 6;
inline constexpr size_t kSourceBytes = 64 * kPagesOfAWriteMax * kPageBytes;  // of 64 writes

struct World::Process {
  size_t host = 0;
  int network_host = 0;
  bool is_alive = true;
  bool is_paused = false;
  bool will_step = false;
  uint64_t timer_ns = ~uint64_t{0};
  uint64_t died_ns = 0;
  Memory memory;                   // peers write here
  std::vector<std::byte> sources;  // and from here it writes
  uint64_t memory_region = 0;
  uint64_t source_region = 0;
  std::vector<const Domain*> domains;
  std::unique_ptr<Engine> engine;
  int jobs_to_begin = 0;
  uint32_t next_epoch = 1;  // of the slot that this process has chosen itself
};

enum class Kind : uint8_t { kSingle, kPaged, kNotify };

struct World::Job {
  uint32_t number = 0;
  Kind kind = Kind::kSingle;
  Process* owner = nullptr;
  Process* writer = nullptr;
  uint64_t deadline_ns = 0;
  uint64_t expected = 0;  // immediates
  bool is_hasty = false;  // a deadline may pass although nothing is wrong

  // The owner's side.
  size_t first_page = 0;
  size_t page_count = 0;
  size_t size_bytes = 0;        // of a single write; of each page of a paged one
  std::vector<uint32_t> pages;  // of a paged one: in units of kPageBytes, from first_page
  std::optional<uint64_t> grant;
  Descriptor descriptor;
  uint32_t immediate = 0;
  bool is_claimed = false;
  bool is_offered = false;
  bool has_arrived = false;
  bool has_given_up = false;
  bool was_quarantined = false;
  bool is_over = false;  // for the owner: its pages are its own

  // The writer's side.
  std::optional<uint64_t> ticket;
  std::optional<uint64_t> target;
  size_t source_offset = 0;
  bool writer_has_begun = false;
  bool writer_is_over = false;
  bool is_done = false;
  bool may_meet_the_killed_rail = false;
  bool makes_a_detour = false;

  /// Visits each byte that it writes: (place in the owner's memory, place in the source).
  template <typename Visit>
  void for_each_byte(const Visit& visit) const {
    if (kind == Kind::kSingle)
      for (size_t i = 0; i < size_bytes; ++i) visit(first_page * kPageBytes + i, source_offset + i);
    if (kind == Kind::kPaged)
      for (size_t page = 0; page < pages.size(); ++page)
        for (size_t i = 0; i < size_bytes; ++i)
          visit((first_page + pages[page]) * kPageBytes + i, source_offset + page * kPageBytes + i);
  }
};

}  // namespace braid::fabric::test
