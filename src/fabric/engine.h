// Start here: an engine writes into the memory of other engines, over all its rails at once.
//
//   A: region = add_region(memory);  peer = the engine that B's Hello made known
//      granted = grant(region, peer, 0, size);  immediate = counters().acquire()
//      send(peer, encode(granted.descriptor) + immediate ...)
//   B: target = open_target(descriptor);  ticket = write(region, target, slice, immediate)
//   A: counters().count(immediate) == immediates_of_write(size): the bytes are there
//   A: revoke(grant, deadline), until fence(grant) is kFenced: the memory is A's own again
//
// Only such counts order anything. A kDone ticket means: the bytes are visible at the target, and
// the source is free. A kFailed ticket means: nothing reads the source any more. Granted memory is
// its owner's again only when fence(grant) says kFenced.
//
// It owns no thread: `step` does all work, and one thread at a time calls its members. No member
// blocks. Times are nanoseconds of the caller's clock, whose time `step` brings. Numbers of peers,
// regions, grants, targets and tickets are never used twice; a number of a thing that is gone is an
// error. Source: sections 3.2 to 3.4 of the paper.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <unordered_map>
#include <vector>

#include "fabric/completions.h"
#include "fabric/engine_types.h"
#include "fabric/group.h"
#include "fabric/imm_counters.h"
#include "fabric/mailbox.h"
#include "fabric/policy/group_plan.h"
#include "fabric/policy/heartbeat.h"
#include "fabric/policy/number_ranges.h"
#include "fabric/policy/replay_window.h"
#include "fabric/processes.h"
#include "fabric/slot_map.h"
#include "fabric/statistics.h"
#include "fabric/wire.h"
#include "fabric/worker.h"

namespace braid::fabric {

class Engine final : private Worker::Listener {
 public:
  /// `rails` are in the same order in all engines that talk to each other.
  static Result<std::unique_ptr<Engine>> open(std::vector<std::unique_ptr<Domain>> rails,
                                              const EngineOptions& options);
  /// Ends the peers' writes and its own: all memory is its owners' again.
  ~Engine();
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  const Address& address() const { return address_; }

  // Memory of this process.

  /// The memory is the caller's, who keeps it until the region is removed.
  Result<uint64_t> add_region(MutableBytes memory);
  /// An error while part of it is granted, or a write still reads it.
  Status remove_region(uint64_t region);

  // Peers.

  /// Says hello. The peer is kConnected when it has answered, kFailed by the deadline.
  Result<uint64_t> connect(const Address& address, uint64_t deadline_ns);
  /// The next engine that has connected to this one.
  std::optional<uint64_t> accept();
  /// The peer that is this engine, whichever side has connected; none: it is not known.
  std::optional<uint64_t> find_peer(uint64_t engine) const;
  /// The number of the engine that this peer is; none: there is no such peer.
  std::optional<uint64_t> engine_of(uint64_t peer) const;
  Result<PeerState> peer_state(uint64_t peer) const;
  /// The peer has failed: calls about it are errors until the engine connects to it anew.
  bool is_lost(uint64_t peer) const;
  /// Whether it has ever been kConnected.
  bool was_connected(uint64_t peer) const;
  /// Why it is kFailed.
  Result<PeerFailure> peer_failure(uint64_t peer) const;
  /// The next failed peer that this function has not named before. Grants to the peer are kFenced;
  /// or kRevoking until all that has come from it is read; or quarantined for good, if the network
  /// cannot fence (Traits::closing_fences). The peer stays until `disconnect`; to reach it again,
  /// connect anew.
  std::optional<uint64_t> next_failed();
  /// Posts nothing more to the peer, says goodbye, and takes back its grants, as `next_failed`
  /// says. Memory of a GPU may take longer (docs/fabric.md). Postings that are still under way to
  /// it after EngineOptions::farewell_ns fail (Domain::abandon). A goodbye that fails is said again
  /// until then, and the peer may be connected anew meanwhile. `is_broken`: the network to the peer
  /// is broken. Its postings then fail soon, and a new connection to the peer reuses no old one.
  Status disconnect(uint64_t peer, bool is_broken = false);
  /// The caller has heard in another way than by a goodbye that a peer which was disconnected has
  /// shut its door. What is under way there ends after EngineOptions::shut_ns.
  void has_shut(uint64_t peer);
  /// The peer has failed or was disconnected, and the engine still reads what has come from it. The
  /// grants to the peer are fenced soon.
  bool is_draining(uint64_t peer) const;
  /// Says goodbye to all peers, before the engine ends. The peers then fence their grants. Nothing
  /// is closed here, since providers fault if they are used after that.
  void say_goodbye();
  bool has_messages_under_way() const;

  // Memory that peers may write.

  /// Whether it may be granted. If so, only the network or the driver can still refuse it.
  Status check_grant(uint64_t region, uint64_t peer, uint64_t offset_bytes,
                     uint64_t size_bytes) const;
  /// Grants it to this peer alone, with a key of its own.
  Result<Granted> grant(uint64_t region, uint64_t peer, uint64_t offset_bytes, uint64_t size_bytes);
  /// Asks the peer to stop; by the deadline the fence is kFenced or kQuarantined.
  Status revoke(uint64_t grant, uint64_t deadline_ns);
  Result<Fence> fence(uint64_t grant) const;
  /// Forgets a fenced grant. A quarantined grant stays.
  Status forget_grant(uint64_t grant);

  // Memory of peers.

  /// Checks that the descriptor is whole, comes from a known peer, is for this engine, and is not
  /// revoked.
  Result<uint64_t> open_target(const Descriptor& descriptor);
  /// False: the owner has revoked it, or is gone.
  bool has_target(uint64_t target) const { return targets_.find(target) != nullptr; }
  /// Its owner is lost.
  bool is_orphan(uint64_t target) const;
  /// Over these rails alone, in all three: the healthiest of them carry it. If none is up, it is
  /// not sent over others, but tried there. How many immediates it makes does not depend on the
  /// rails.
  Result<uint64_t> write(uint64_t region, uint64_t target, const Slice& slice,
                         std::optional<uint32_t> immediate, uint64_t deadline_ns,
                         RailRange rails = {});
  Result<uint64_t> write_pages(uint64_t region, uint64_t target, uint64_t page_bytes, Pages source,
                               Pages destination, std::optional<uint32_t> immediate,
                               uint64_t deadline_ns, RailRange rails = {});
  /// Each slice makes an immediate of its own, and is no larger than Slicing::slice_bytes. Small
  /// slices are posted together, and adjacent ones as one.
  Result<uint64_t> write_slices(uint64_t region, uint64_t target, std::vector<Slice> slices,
                                std::optional<uint32_t> immediate, uint64_t deadline_ns,
                                RailRange rails = {});
  /// One immediate and no bytes.
  Result<uint64_t> notify(uint64_t peer, uint32_t immediate, uint64_t deadline_ns);

  // Groups of peers: one ticket for all.

  /// From now on the engine knows the members, their targets and their immediates. For barriers
  /// each member needs a group of its own, with the two immediates exchanged. Immediates of a group
  /// that has had a barrier serve no other group.
  Result<uint64_t> add_group(std::vector<GroupMember> members);
  Status remove_group(uint64_t group);
  /// Part i goes from the region to the target of member i. A part of no bytes makes no immediate.
  /// The other parts go on when one fails.
  Result<uint64_t> scatter(uint64_t region, uint64_t group, std::span<const Part> parts,
                           uint64_t deadline_ns, RailRange rails = {});
  /// Tells every member that this engine has reached the barrier, and is done once all members have
  /// told this engine the same. It carries no bytes and orders no writes: wait for tickets first. A
  /// group has one barrier at a time, and none after a barrier that has failed.
  Result<uint64_t> barrier(uint64_t group, uint64_t deadline_ns);
  /// The peers for which a group's ticket is not done; once it has ended, those for which it
  /// failed.
  Result<std::vector<uint64_t>> missing(uint64_t ticket) const;

  // Messages.

  /// Copies the message, at most kPayloadBytesMax. An error, and nothing sent, if the peer has no
  /// buffer for it now. Messages of one peer come in any order. `following`: bytes that come with
  /// it and are not sealed, for a peer of which the caller knows that it takes them
  /// (DataWithBytes).
  Status send(uint64_t peer, Bytes payload, Bytes following = {});
  /// The next message that has come.
  std::optional<Received> receive();

  // Rails.

  /// Statistics of each peer over each rail; of each rail; of each peer.
  std::vector<RouteStatistics> routes() const;
  std::vector<RailStatistics> rails() const;
  std::vector<PeerStatistics> peers() const;
  /// Takes a rail out of use, for example to service its NIC. This engine sends no slice or message
  /// over it any more, and asks peers of version 2 to do the same towards this engine. A rail is
  /// still used if there is no other to the peer. To retire the last rail is an error.
  Status retire_rail(size_t rail);
  /// Puts a rail back into use; both sides probe it first.
  Status restore_rail(size_t rail);

  // Tickets of writes.

  Result<TicketState> state(uint64_t ticket) const;
  Failure failure(uint64_t ticket) const;
  /// Posts no more of it. It ends as kFailed once nothing of it is under way, and the source is
  /// free then. If all of it was posted already, it ends as if it were not cancelled. Slices that
  /// have landed stay, and count. For a scatter this holds for each part. A barrier fails.
  Status cancel(uint64_t ticket);
  /// The caller will not ask for the ticket any more. Its slices under way go on.
  void forget(uint64_t ticket);

  ImmCounters& counters() { return counters_; }
  const ImmCounters& counters() const { return counters_; }

  // Requests for events (completions.h). `request` is the caller's number, which comes with the
  // event.

  /// An event when the ticket is not pending any more; for a quarantined ticket, when it has
  /// failed.
  Status when_ended(uint64_t ticket, uint64_t request);
  /// An event when a claimed immediate has arrived `count` times.
  Status when_counted(uint32_t immediate, uint64_t count, uint64_t request);
  /// As ImmCounters::release; requests that wait for its count get a cancelled event.
  Status release_immediate(uint32_t immediate, uint64_t missing);
  /// An event for each message that comes, and one at once if a message is here already. Another
  /// request replaces this one.
  void watch_messages(uint64_t request);
  /// Why no stream of a GPU may wait for this count: on all wires a CPU polls for immediates.
  Status refuse_stream_wait(uint32_t immediate) const;
  /// The driver of the engine takes the events out.
  Completions& completions() { return completions_; }

  EngineStatistics statistics() const;
  /// Memory that is granted and quarantined now.
  uint64_t quarantined_bytes() const;
  const Secret& secret() const { return options_.secret; }

  /// True: something has happened, and there may be more to do at once.
  bool step(uint64_t now_ns);
  /// Posts what waits to be posted, as `step` does, but polls nothing. True: it has posted
  /// something.
  bool post();
  /// The time at which `step` has something to do even if nothing arrives.
  uint64_t next_deadline_ns() const;
  /// Nothing is under way: the engine only waits for arrivals.
  bool is_idle() const;
  /// Something waits for room in a queue. No descriptor reports room: step now and then.
  bool waits_for_room() const;
  /// Of the rails (Domain::wait_descriptor) and of peers' processes. Empty: a rail has none; step
  /// now and then.
  std::vector<int> wait_descriptors();
  /// True: any arrival or completion from now on makes one of them readable. False: step first.
  bool arm();

 private:
  using PeerWindow = ReplayWindow<1 << 15>;  // 4 KiB
  // All that wait for a peer may overtake one that a silent rail holds.
  static_assert(PeerWindow::kMessages > EngineOptions::kQueuedMax);
  /// What has come from a peer over one of several rails.
  struct Arrivals {
    uint64_t newest = 0;    // message
    uint64_t heard_ns = 0;  // when, in awake time; 0: the rail is not judged by its silence
  };
  /// A message that goes to a peer again if its rail turns out to be down.
  struct Told {
    size_t rail = 0;
    uint64_t at_ns = 0;
    std::vector<std::byte> bytes;
  };
  struct Peer {
    uint64_t engine = 0;
    uint16_t version = kVersion;  // that both speak
    uint64_t session = 0;         // our number of this connection
    uint64_t their_session = 0;   // 0: not known yet
    uint64_t sequence = 0;        // of the last message to it
    PeerWindow heard;
    uint64_t missing = 0;       // the oldest message that has not come; 0: none
    uint64_t overtaken_by = 0;  // it is lost once each rail has brought a later message than this
    std::vector<Arrivals> arrivals;  // by rail
    std::deque<Told> told;           // over several rails: the latest
    Pulse pulse;
    PeerState state = PeerState::kConnecting;
    PeerFailure failure = PeerFailure::kNone;
    bool was_connected = false;
    bool is_newcomer = false;        // it has said hello first, and nobody has accepted it
    bool has_arrived = false;        // its Hello or Welcome has come: credits and doors are known
    uint64_t retired_change = 0;     // the latest RailsRetired::change that it has told
    bool has_ended = false;          // its process, on this host
    bool is_leaving = false;         // disconnected; stays while something is under way or owed
    bool owes_goodbye = false;       // it was disconnected, and may not know
    bool is_to_say_goodbye = false;  // this engine, again, at the peer's deadline for kGoodbye
    uint32_t goodbyes_failed = 0;
    uint32_t credits = 0;  // messages that it has buffers for
    uint32_t unread = 0;   // of its messages here
    uint32_t owed = 0;     // credits to give back
    Address address;
    std::vector<uint32_t> messages;         // its indices where messages go, by rail
    std::vector<Route> routes;              // where writes go, by rail
    std::vector<uint32_t> doors;            // that it writes to, by rail; empty: none, or shut
    uint64_t next_probe_ns = ~uint64_t{0};  // its deadline for kProbe
    Target scratch;
    std::map<uint64_t, uint64_t> targets;  // by its grants
    NumberRanges revoked;                  // its grants that are revoked, from revoked_below on
    uint64_t revoked_below = 0;
    uint64_t next_grant = 0;               // its number of what it is granted next
    std::map<uint64_t, uint64_t> granted;  // by its numbers, until it has confirmed the revocation
    uint64_t oldest_live = 0;              // no grant with a lower number is live
  };
  struct Region {
    Source source;
    uint64_t grants = 0;
    uint64_t transfers = 0;
  };
  struct Grant {
    uint64_t peer = 0;
    uint64_t region = 0;
    uint64_t size_bytes = 0;
    uint64_t number = 0;  // as the peer knows it
    Fence fence = Fence::kLive;
    uint64_t deadline_ns = ~uint64_t{0};  // of its revocation, the earliest
    std::vector<uint32_t> rails;          // the domains' regions
    std::vector<uint32_t> doors;          // by rail, once they close: drained, they fence the grant
    bool removal_fences = true;           // on every rail
    bool is_closed = false;               // the regions were removed
    bool is_fenced = false;               // the peer has confirmed, and nothing has failed
  };
  struct PeerTarget {
    uint64_t peer = 0;
    uint64_t grant = 0;  // the peer's number
    bool is_revoked = false;
    Target target;
  };
  /// What waits for an immediate of a group.
  struct Hearing {
    uint64_t ticket = 0;  // none
    size_t part = 0;
    uint64_t round = 0;
  };
  enum class Due : uint8_t { kTransfer, kGrant, kPeer, kGoodbye, kFarewell, kShut, kProbe };
  struct Deadline {
    uint64_t at_ns;
    Due what;
    uint64_t id;
    static bool is_later(const Deadline& a, const Deadline& b) { return a.at_ns > b.at_ns; }
  };

  Engine(std::vector<std::unique_ptr<Domain>> rails, const EngineOptions& options);
  Status prepare();

  void transfer_ended(uint64_t id, const Transfer& transfer) override;
  void immediate_arrived(uint32_t immediate, uint32_t count) override;
  void foreign_completed(size_t rail, const Completion& completion) override;
  void route_suspected(const Transfer& transfer) override { probe_routes(transfer.holds.peer); }

  // peers.cpp
  Result<uint64_t> add_peer(const Address& address);
  Status check_peer(const Address& address) const;
  Status open_doors(Peer& peer);
  Status connect_messages(Peer& peer);
  Doors doors_for(const Peer& peer);
  Status connect_doors(Peer& peer, const Doors& doors);
  void close_doors(uint64_t id);
  void connected(uint64_t id);
  void fail_peer(uint64_t id, PeerFailure why);
  void stop_writes(Peer& peer);
  bool has_writes_under_way(const Peer& peer) const;
  bool remove_if_drained(uint64_t id);
  void remove_peer(uint64_t id, bool is_broken);
  void abandon(uint64_t id, Absence absence);
  Peer* find_live(uint64_t id);
  std::optional<uint64_t> find_newcomer(uint64_t engine);

  // liveness.cpp
  void look_after_peers(uint64_t now_ns);
  void look_after_processes(uint64_t now_ns);
  bool ends_are_told() const;
  bool is_overtaken(Peer& peer) const;
  void suspect_quiet_rails(uint64_t id, Peer& peer);

  // messages.cpp
  void tell(uint64_t peer, decltype(Message::body) body);
  void beat(uint64_t peer);
  void tell(uint64_t peer, size_t rail, decltype(Message::body) body, Bytes following = {});
  std::vector<std::byte> next_message(Peer& peer, decltype(Message::body) body,
                                      Bytes following) const;
  void tell_over_all(uint64_t peer, const std::vector<size_t>& rails, decltype(Message::body) body);
  std::vector<size_t> working_rails(const Peer& peer) const;
  void keep(Peer& peer, size_t rail, const std::vector<std::byte>& bytes) const;
  static bool may_hear(const Peer& peer);
  void tell_goodbye(uint64_t id);
  void goodbye_ended(uint64_t id, bool is_heard);
  void say_goodbye_again(uint64_t id);
  static void owe_no_goodbye(Peer& peer);
  bool has_only_goodbye_left(const Peer& peer) const;
  void say_no_more_goodbyes();
  size_t messages_for(const Peer& peer) const;
  void drop_messages(const Peer& peer);
  void handle(size_t rail, Bytes bytes);
  bool accept_message(Peer& peer, size_t rail, const Message& message);
  std::optional<uint64_t> sender_of(const Message& message);
  void forget_arrival(uint64_t peer);
  void note_missing(Peer& peer) const;
  void handle_hello(const Message& message, const Hello& hello);
  bool has_greeted(const Message& hello) const;
  std::optional<uint64_t> peer_of_hello(const Message& message, const Hello& hello);
  template <typename Arrival>
  void arrived(uint64_t peer, const Arrival& arrival);
  void handle_from(uint64_t peer, const Welcome& welcome);
  void handle_from(uint64_t peer, Data&& data);
  void data_arrived(uint64_t peer, std::vector<std::byte>&& payload, Bytes following);
  void handle_from(uint64_t peer, const Credit& credit);
  void handle_from(uint64_t peer, const Revoke& revoke);
  void handle_from(uint64_t peer, const Revoked& revoked);
  void handle_from(uint64_t, const Hello&) {}
  void handle_from(uint64_t, const Beat&) {}
  void handle_from(uint64_t peer, const Goodbye& goodbye);
  void handle_from(uint64_t peer, const RailsRetired& told);
  static void add_credits(Peer& peer, uint32_t credits);

  // rails.cpp
  void tell_retired(uint64_t peer);
  RailsRetired retired_rails() const;
  void probe_routes(uint64_t peer);
  void probe(uint64_t peer, size_t rail);
  void probe_ended(const Transfer& transfer);
  size_t message_rail(const Peer& peer) const;
  bool send_again(size_t rail, Mailbox::Letter letter);
  void move_messages(uint64_t id, Peer& peer, size_t rail);

  // grants.cpp
  uint64_t oldest_live_grant(Peer& peer) const;
  void give_up_waiting(uint64_t id, Grant& grant);
  Result<uint32_t> add_granted(size_t rail, const Peer& peer, MutableBytes memory);
  void close_grant(uint64_t id, Grant& grant, bool is_fenced);
  Drain drain(const Grant& grant);
  void fence_drained();
  void confirm_if_drained(uint64_t target);
  Status check_target(const PeerTarget* target) const;

  // groups.cpp
  void start_part(uint64_t ticket, size_t part, Transfer transfer);
  void hear(uint32_t immediate);
  void group_ticket_ended(uint64_t ticket);
  void stop_group_ticket(uint64_t ticket, Failure why);
  void fail_barriers_of(uint64_t peer);

  Transfer notification(uint64_t peer, uint32_t immediate);
  template <typename MakePlan>
  Result<uint64_t> write_by(const MakePlan& make_plan, uint64_t region, uint64_t target,
                            std::optional<uint32_t> immediate, uint64_t deadline_ns,
                            RailRange rails);
  Result<uint64_t> start(uint64_t region, PeerTarget& target, uint64_t target_id, Result<Plan> plan,
                         std::optional<uint32_t> immediate, uint64_t deadline_ns, RailRange rails);
  Status check_rails(RailRange rails) const;
  void add_deadline(uint64_t at_ns, Due what, uint64_t id);
  bool post_messages();
  void meet_deadlines(uint64_t now_ns);
  void meet(const Deadline& due);
  void stop_late(uint64_t ticket);
  bool matters(const Deadline& due);

  EngineOptions options_;
  bool closing_fences_ = true;  // on every rail
  uint64_t now_ns_ = 0;         // of the last step
  AwakeClock awake_;
  uint64_t look_after_peers_ns_ = 0;   // when
  uint64_t look_at_processes_ns_ = 0;  // when, at the latest
  size_t handshakes_ = 0;              // newcomers that have not answered
  Address address_;
  alignas(64) std::array<std::byte, 64> scratch_{};  // peers write byte 0; byte 32 is written from
  Source scratch_source_;
  std::vector<std::unique_ptr<Mailbox>> mailboxes_;  // by rail
  std::vector<bool> retired_;                        // by rail
  uint64_t retired_change_ = 0;                      // changes of it, as peers were told
  Worker worker_;                                    // ends before all memory that its rails know
  SlotMap<Peer> peers_;
  std::unordered_map<uint64_t, uint64_t> peer_of_engine_;  // its current connection
  std::unordered_map<uint64_t, uint64_t> peer_of_session_;
  SlotMap<Region> regions_;
  std::map<uint64_t, Grant> grants_;  // by number: they rise
  uint64_t next_grant_ = 1;
  std::set<uint64_t> draining_;  // grants that are closed, and may still be written
  SlotMap<PeerTarget> targets_;
  std::deque<uint64_t> newcomers_;
  std::deque<uint64_t> failed_;
  std::deque<Received> inbox_;
  ImmCounters counters_;
  Completions completions_;
  SlotMap<Group> groups_;
  GroupTickets group_tickets_;
  std::unordered_map<uint32_t, Hearing> hears_;  // by the immediates of members of all groups
  std::set<uint32_t> spent_;                     // such, of groups that have met and are removed
  EngineStatistics statistics_;
  std::vector<Deadline> deadlines_;  // a heap, the earliest first; some are obsolete (matters())
  size_t deadlines_max_ = 1024;      // then the obsolete ones are taken out
};

}  // namespace braid::fabric
