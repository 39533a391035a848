#pragma once

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "fabric/world.h"

namespace braid::fabric::test {

inline constexpr size_t kPagesOfAWriteMax = 6;
inline constexpr size_t kSourceBytes = 64 * kPagesOfAWriteMax * kPageBytes;  // of 64 writes

/// What a process has asked to be told: of a ticket, or of the count of a write's immediates.
struct World::Asked {
  Job* job = nullptr;
  Club* club = nullptr;  // whose barrier it is, of this member
  size_t member = 0;
  uint64_t ticket = 0;
  uint64_t count = 0;
};

struct World::Process {
  size_t host = 0;
  int network_host = 0;
  bool is_alive = true;
  bool is_known_to_be_gone = false;  // the others disconnect it
  bool is_paused = false;
  bool will_step = false;
  uint64_t timer_ns = ~uint64_t{0};
  uint64_t engine_number = 0;
  std::set<const Process*> has_called;  // connected to
  std::set<const Process*> has_lost;    // given up
  uint64_t losses = 0;                  // so many
  Memory memory;                        // peers write here
  std::vector<std::byte> sources;       // and from here it writes
  uint64_t memory_region = 0;
  uint64_t source_region = 0;
  std::vector<std::vector<const Domain*>> domains;  // the endpoints of each rail
  std::unique_ptr<Engine> engine;
  int jobs_to_begin = 0;
  uint32_t next_epoch = 1;  // of the slot that this process has chosen itself
  std::vector<std::pair<Job*, Descriptor>> to_scatter;
  uint64_t requests = 0;
  std::map<uint64_t, Asked> asked;  // by request
  std::map<uint64_t, PeerState> peers_told;
  bool has_messages = false;  // as it was told
};

enum class Kind : uint8_t { kSingle, kPaged, kNotify };

struct World::Job {
  uint32_t number = 0;
  Kind kind = Kind::kSingle;
  Process* owner = nullptr;
  Process* writer = nullptr;
  uint64_t deadline_ns = 0;
  uint64_t expected = 0;  // immediates
  bool is_hasty = false;  // the owner's deadline may pass although nothing is wrong

  // The owner's side.
  size_t first_page = 0;
  size_t page_count = 0;
  size_t size_bytes = 0;        // of a single write; of each page of a paged one
  std::vector<uint32_t> pages;  // of a paged one: in units of kPageBytes, from first_page
  std::optional<uint64_t> grant;
  uint64_t granted_to = 0;  // the owner's number of the writer
  Descriptor descriptor;
  std::vector<std::byte> order;  // what tells the writer
  uint32_t immediate = 0;
  bool is_claimed = false;
  bool is_offered = false;
  bool has_arrived = false;
  bool has_given_up = false;
  bool was_quarantined = false;
  bool is_over = false;      // for the owner: its pages are its own
  bool is_released = false;  // its immediate
  uint64_t count_told = 0;
  uint64_t fence_deadline_ns = 0;  // of the revocation
  uint64_t fenced_ns = 0;

  // The writer's side.
  std::optional<uint64_t> ticket;
  std::optional<uint64_t> target;
  uint64_t part_peer = 0;  // of a part of a scatter: the writer's number of the owner
  size_t source_offset = 0;
  uint64_t begun_ns = 0;
  uint64_t ticket_deadline_ns = 0;
  bool is_ticket_hasty = false;
  bool was_ordered = false;
  bool end_was_asked = false;
  bool end_was_told = false;
  bool quarantine_was_told = false;
  bool writer_has_begun = false;
  bool writer_is_over = false;
  bool was_cancelled = false;
  bool is_done = false;
  bool has_failed_in_network = false;
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

struct World::Club {
  struct Member {
    Process* process = nullptr;
    uint64_t group = 0;
    std::vector<uint32_t> heard;  // by member: the immediate that it sends to this one
    std::vector<uint64_t> peers;  // by member
    uint64_t entered = 0;         // barriers
    uint64_t ticket = 0;          // of the barrier that it is in
    bool is_to_enter = false;
    uint64_t entered_ns = 0;
    uint64_t deadline_ns = 0;
  };
  std::vector<Member> members;
  uint64_t rounds = 0;
  bool is_hasty = false;
  bool may_fail = false;  // a notification may meet the rail that is broken for good
  size_t truant = ~size_t{0};
  uint64_t truant_after = 0;
};

}  // namespace braid::fabric::test
