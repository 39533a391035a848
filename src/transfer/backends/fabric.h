// Moves slices over rails: all providers that src/fabric opens, several at once. A way is one rail
// of this process to one rail of a peer; it has a link while it works.
//
// Fencing a way: this side closes its link, which fences reads. It asks the owner over any other
// link to close its end, and the owner answers once none of the writes can land any more. If no way
// reaches the owner, the owner has heard nothing for longer than fabric's heartbeat allows, and has
// shut its doors by itself.
//
// If both sides want a link, the side with the lower incarnation dials first. Threads: one at a
// time.
#pragma once

#include <deque>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "transfer/backend.h"
#include "transfer/due.h"
#include "transfer/notifications.h"
#include "transfer/policy/token_bucket.h"
#include "transfer/rail.h"

namespace braid::transfer {

struct FabricStatistics {
  uint64_t dials = 0;
  uint64_t links_lost = 0;
  uint64_t notifications_sent = 0;
  uint64_t notifications_received = 0;
};

class FabricBackend final : public Backend {
 public:
  FabricBackend(std::vector<std::unique_ptr<Rail>> rails, const Incarnation& self);
  /// Tells the peers.
  ~FabricBackend() override;

  size_t rail_count() const { return rails_.size(); }
  const Rail& rail(size_t index) const { return *rails_[index]; }

  /// Adds a buffer to all rails that can reach it. GPU memory is added to the rails of
  /// `reaches_gpus`, but to a `local` rail only if the driver can share the memory. The result
  /// names the rails that should reach the buffer and refuse it. An error: all of them refuse it.
  Result<Reached> add_buffer(const Buffer& buffer);
  void retire_buffer(uint64_t buffer);
  bool holds_buffer(uint64_t buffer) const;

  /// `address`: of the peer's rail. It dials. An error: the address cannot be read, as one of
  /// another version (kOtherVersion).
  Status add_way(uint32_t way, const Incarnation& peer, size_t rail,
                 std::vector<std::byte> address);
  void remove_peer(const Incarnation& peer);
  /// The caller knows that the peer's process has ended.
  void owner_ended(const Incarnation& peer);

  /// Asks for a file of the peer, again if no answer comes. The answer is kept until `take_file` or
  /// `forget_file`.
  void ask_for_file(const Incarnation& peer, FileOpen request);
  std::optional<FileOpened> take_file(uint64_t token);
  void forget_file(uint64_t token) { files_asked_.erase(token); }

  /// Notifies a peer, or this engine itself. False: too many notifications are unanswered.
  bool notify(const Incarnation& who, std::string name, std::vector<std::byte> payload);
  /// The number of notifications without an answer that may still get one.
  size_t unanswered(const Incarnation& who) const;
  std::vector<Notified> take_notifications() { return std::exchange(notified_, {}); }
  /// Sets how many more notifications may wait for the caller.
  void set_notification_room(size_t count) {
    notification_room_ = count;
    deliver_own();
  }

  void post(uint32_t way, const Piece& piece) override;
  void give_up(uint32_t way, uint64_t piece) override;
  void probe(uint32_t way, uint64_t id) override;
  void fence(uint32_t way) override;
  bool step(uint64_t now_ns) override;
  /// Sends posted slices at once, not at the next step.
  void push();
  std::vector<BackendEvent> take_events() override { return std::exchange(events_, {}); }
  uint64_t next_deadline_ns() const override;
  bool arm() override;
  /// Readable once something has arrived.
  std::vector<int> wait_descriptors() const;
  /// Some arrivals make no descriptor readable: call `step` now and then.
  bool has_to_be_asked() const;

  bool is_up(uint32_t way) const;
  /// The number of the latest link of the way that was up; 0: none was.
  uint64_t generation(uint32_t way) const;
  const FabricStatistics& statistics() const { return statistics_; }

 private:
  struct LinkOfRail {
    size_t rail = 0;
    uint64_t link = 0;
    bool operator==(const LinkOfRail&) const = default;
    auto operator<=>(const LinkOfRail&) const = default;
  };
  /// For how long after a probe, or while a fence waits, a way that is down is dialled.
  static constexpr uint64_t kWantedNs = 1'000'000'000;
  enum class FenceState : uint8_t { kNone, kWanted, kAsked, kAnswered };
  struct Way {
    Incarnation peer{};
    size_t rail = 0;
    std::vector<std::byte> address;
    uint64_t engine = 0;  // fabric's number of the peer's rail
    uint64_t link = 0;  // 0: none; otherwise the link is dialled, up, or closed and not fenced yet
    bool is_up = false;
    bool is_of_other_version = false;  // it is dialled no more
    uint64_t generation = 0;           // of the latest link that was up
    uint64_t peer_number = 0;          // fabric's, at that link's other end
    uint64_t dial_ns = 0;              // the way is not dialled before this time
    uint64_t dial_again_ns = 0;        // and not before this one unless a probe asks for it
    uint64_t dial_until_ns = std::numeric_limits<uint64_t>::max();  // how long it is wanted
    uint32_t dials = 0;                                             // since it was last up
    std::vector<uint64_t> probes;
    FenceState fence = FenceState::kNone;
    LinkOfRail asked_over;
    uint64_t asked_ns = 0;
    size_t fence_turn = 0;
    uint64_t token = 0;
    uint64_t fenced_generation = 0;
    uint64_t fenced_peer = 0;
  };
  struct Peer {
    std::vector<uint32_t> ways;
    std::vector<LinkOfRail> up;
    bool is_lost = false;
    bool has_ended = false;  // it is lost for good
    uint64_t heard_ns = 0;   // when it last had a link, or was added
    NotificationSender sender;
    NotificationReceiver receiver;
  };
  /// A peer waits to hear that its rail is fenced.
  struct FenceAsked {
    LinkOfRail over;
    Incarnation who{};
    FenceRequest request;
  };

  struct FileAsked {
    Incarnation who{};
    FileOpen request;
    std::optional<LinkOfRail> over;  // none: the question waits for a link
    uint64_t asked_ns = 0;
    size_t turn = 0;
    std::optional<FileOpened> answer;
  };

  void want_dial(uint32_t id, Way& way, uint64_t when_ns);
  void dial_due();
  void dial(uint32_t id, Way& way);
  bool takes_open_link(uint32_t id, Way& way);
  void take_link(uint32_t id, Way& way, uint64_t link);
  void other_version(uint32_t id, Way& way);
  void handle(size_t rail, const RailEvent& event);
  void link_up(size_t rail, const LinkUp& up);
  void link_lost(LinkOfRail link, const LinkLost& lost);
  void link_fenced(LinkOfRail link);
  void forget_link(LinkOfRail link);
  void handle_message(LinkOfRail link, const RailMessage& message);
  void probe_answered(LinkOfRail link, uint64_t id);
  void end_probes(Way& way);
  void lose_peer(const Incarnation& who);
  void say_last_notifications();
  void take_leave();

  // fabric_fences.cpp
  void look_after_fences();
  void ask_for_fence(uint32_t id, Way& way);
  bool is_fenced_there(const Way& way) const;
  void answer_fences();
  void fence_asked(const FenceAsked& asked);
  void fence_answered(const Incarnation& who, uint64_t token);

  void expect(const Incarnation& who, const Peer& peer);
  void look_after_peers();
  void forget_peer(const Incarnation& who);

  // fabric_files.cpp
  void ask_for_files();
  void file_opened(const Incarnation& who, const FileOpened& answer);
  void end_files_asked(const Incarnation& who, Cause cause);

  // fabric_notifications.cpp
  void send_notifications();
  void notification_answered(const Incarnation& who, const NotificationAnswer& answer);
  void deliver_own();
  void handle_notification(LinkOfRail link, const Notification& notification);

  std::vector<std::unique_ptr<Rail>> rails_;
  Incarnation self_;
  uint64_t now_ns_ = 0;
  std::map<uint32_t, Way> ways_;
  std::map<Incarnation, Peer> peers_;
  Due<Incarnation> silent_;  // peers without a link: when they are given up, or forgotten
  /// Peers without ways and links that may come back, by when they were last heard of: both sides
  /// go on with the numbers of their notifications.
  Due<Incarnation> kept_;
  static constexpr size_t kKeptMax = 4096;
  std::set<Incarnation> unanswered_;       // peers with notifications that they have not answered
  std::map<LinkOfRail, Incarnation> who_;  // of links that are up
  std::map<LinkOfRail, uint32_t> way_of_link_;  // also of links that are closed, until fenced
  std::vector<FenceAsked> fences_asked_;
  std::vector<BackendEvent> events_;
  std::vector<Notified> notified_;
  std::deque<Notified> to_self_;               // notifications that have no room yet
  std::map<uint64_t, FileAsked> files_asked_;  // by token
  size_t notification_room_ = 4096;
  uint64_t tokens_ = 0;
  size_t fencing_ = 0;  // ways
  /// Many links that break at once are not all dialled at once.
  static constexpr double kDialsAtOnce = 64, kDialsPerSecond = 1000;
  TokenBucket dials_{kDialsAtOnce, kDialsPerSecond};
  /// Ways without a link that are to be dialled: until they are up for the first time, later for a
  /// while after each probe. Those that wait for the limit keep their times, so that none waits for
  /// those that came later.
  Due<uint32_t> dialling_;
  FabricStatistics statistics_;
};

}  // namespace braid::transfer
