// The callers' requests for events, and the events that have happened since.
//
// A request makes exactly one event, which says that the thing has happened or cannot happen any
// more. Only requests about peers and about messages last: they make events until another request
// takes their place. Events come in the order in which the engine saw things happen. Their queue
// needs no limit: a caller has asked for each event, and a peer can add only two, and one for each
// message that it had credit for. Not synchronised.
// Source: 3.3 of the paper ("Completion Notification", expect_imm_count).
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <set>
#include <tuple>
#include <unordered_map>

namespace braid::fabric {

enum class About : uint8_t { kTicket, kCount, kPeer, kMessage };

struct Happening {
  About about = About::kTicket;
  uint64_t request = 0;       ///< the caller's number for it
  uint64_t id = 0;            ///< of the ticket or peer; the immediate
  uint64_t value = 0;         ///< its TicketState or PeerState; how often the immediate has arrived
  bool is_cancelled = false;  ///< it cannot happen any more: what it was about is gone
  bool operator==(const Happening&) const = default;
};

class Completions {
 public:
  // The engine first checks that the thing has not happened yet.

  void when_ended(uint64_t ticket, uint64_t request) { tickets_.emplace(ticket, request); }
  void when_counted(uint32_t immediate, uint64_t count, uint64_t request) {
    counts_.emplace(immediate, count, request);
  }
  void watch_peers(uint64_t request) { replace(peers_, About::kPeer, request); }
  void watch_messages(uint64_t request) { replace(messages_, About::kMessage, request); }

  // The engine reports what happens.

  void add(const Happening& happening) { events_.push_back(happening); }
  void ticket_ended(uint64_t ticket, uint64_t state);
  void ticket_is_gone(uint64_t ticket);
  bool expects_counts() const { return !counts_.empty(); }
  void counted(uint32_t immediate, uint64_t count);
  void immediate_is_gone(uint32_t immediate);
  void peer_changed(uint64_t peer, uint64_t state);
  void message_arrived();
  /// Nothing can happen any more.
  void cancel_all();

  /// The next event, which is then the caller's.
  std::optional<Happening> next();

 private:
  void replace(std::optional<uint64_t>& request, About about, uint64_t by);
  void end_ticket(uint64_t ticket, uint64_t state, bool is_cancelled);

  std::unordered_multimap<uint64_t, uint64_t> tickets_;        // to requests
  std::set<std::tuple<uint32_t, uint64_t, uint64_t>> counts_;  // immediate, count, request
  std::optional<uint64_t> peers_;
  std::optional<uint64_t> messages_;
  std::deque<Happening> events_;
};

}  // namespace braid::fabric
