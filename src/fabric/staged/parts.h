// The parts of the staged domain: regions, lines to peers, its own writes, and the writes of others
// here. The terms are: a *posting* is a write of the user's; its *pieces* pass through the rings;
// an *arrival* is a piece of another domain's that is being copied to a GPU of ours.
#pragma once

#include <deque>
#include <memory>
#include <optional>
#include <set>
#include <unordered_map>
#include <vector>

#include "fabric/domain.h"
#include "fabric/gpu/lane.h"
#include "fabric/gpu/passage.h"
#include "fabric/staged/options.h"
#include "fabric/staged/records.h"
#include "fabric/staged/sealing.h"
#include "fabric/staged/span_ring.h"
#include "fabric/table.h"
#include "host/random_number.h"

namespace braid::fabric::staged {

class StagedDomain final : public Domain {
 public:
  static Result<std::unique_ptr<Domain>> open(std::unique_ptr<Domain> wire, const Options& options);
  ~StagedDomain() override;

  const Traits& traits() const override { return traits_; }
  Bytes address() const override { return address_; }
  Result<uint32_t> add_region(MutableBytes memory, Access access) override;
  RemoteRange remote_range(uint32_t region) const override;
  void remove_region(uint32_t region) override;
  bool removal_fences(uint32_t region) const override;
  Drain drain(uint32_t region) const override {
    return draining_.contains(region) ? Drain::kEnding : Drain::kOver;
  }
  Result<uint32_t> connect(Bytes address) override { return connect_all(address, {}); }
  Result<uint32_t> connect_all(Bytes address, std::span<const Bytes> further) override;
  size_t ways(uint32_t peer) const override;
  void disconnect(uint32_t peer) override;
  void abandon(uint32_t peer, Absence absence) override;
  Result<uint32_t> open_door() override;
  Bytes door_address(uint32_t door) const override { return doors_.at(door); }
  std::vector<Bytes> further_door_addresses(uint32_t door) const override {
    return wire_->further_door_addresses(door);
  }
  Result<uint32_t> add_door_region(uint32_t door, MutableBytes memory) override;
  void close_door(uint32_t door) override;
  Drain drain_door(uint32_t door) const override;
  bool post_write(const Write& write) override;
  bool post_send(uint32_t peer, uint32_t region, Bytes message, uint64_t context) override;
  bool post_receive(uint32_t region, MutableBytes buffer, uint64_t context) override;
  size_t poll(std::span<Completion> completions) override;
  Rejections rejections() const override {
    Rejections all = sealing_.rejections();
    return all += wire_->rejections();
  }

 private:
  struct Region {
    MutableBytes memory;
    uint32_t wire = 0;                // host memory
    std::shared_ptr<gpu::Lane> lane;  // GPU memory
    std::optional<uint32_t> door;     // through which alone it is written
    uint64_t key = 0;
    uint64_t arrivals = 0;  // under way
    bool is_gpu() const { return lane != nullptr; }
  };
  struct Ring {
    gpu::Passage memory;
    std::optional<uint32_t> region;  // of the wire
  };
  /// The messages to one place, in either role.
  struct Line {
    std::vector<std::byte> address;
    uint32_t wire = 0;                   // the wire's number of the peer
    uint8_t version = kVersions.newest;  // that it speaks
    uint64_t number = random_number();   // in the seals of our messages, with
    uint64_t sequence = 0;               // of the last one
    uint32_t users = 0;                  // connections and visitors
    uint32_t connections = 0;
    uint32_t abandoned = 0;         // of the connections
    bool is_abandoned = false;      // all were: later connections get a line of their own
    bool has_ended = false;         // the process of one that was abandoned
    std::vector<std::byte> memory;  // of the messages under way
    uint32_t region = 0;
    std::vector<uint32_t> free;      // parts of it
    std::deque<uint32_t> greetings;  // peers to greet before the records are sent
    std::deque<Record> records;
    bool is_talking = false;     // it is in talking_
    uint64_t silent_until = 0;   // in polls_: a message was just given back
    uint64_t silence_polls = 0;  // the last
    uint64_t talks_until = 0;    // in polls_, once it has no users
    bool has_words() const { return !records.empty() || !greetings.empty(); }
  };
  struct Send {
    uint32_t line;
    uint32_t part;
    bool is_asking = false;       // the message is from our writer's role
    std::vector<Record> answers;  // of our owner's role; sent again if it is given back
  };
  /// A door of a peer's. It is disconnected once it was left and no posting there is under way; the
  /// peer stays until then.
  struct Way {
    uint32_t peer = 0;
    uint32_t wire = 0;    // the wire's number of it
    uint32_t pieces = 0;  // under way
    bool is_left = false;
  };
  struct Peer {
    enum class State : uint8_t { kUnknown, kAsked, kOpen } state = State::kUnknown;
    uint32_t line = 0;
    std::optional<uint32_t> door;  // for writes into host memory; none: the line's way
    bool is_wide = false;          // its door is written at all endpoints of the wire
    bool is_cautious = false;   // a piece has failed: the next ring takes the first endpoint alone
    bool is_abandoned = false;  // its messages, too
    bool is_gone = false;       // it stays until its postings have ended
    uint64_t lasting_number = 0;  // of the connection
    uint64_t number = 0;          // our number of the session; 0: there is none
    uint64_t session = 0;         // the owner's number of the same session
    std::optional<uint32_t> way;  // to its ring
    RemoteRange remote;           // that ring
    SpanRing remote_spans{0};
    std::optional<Ring> ring;  // ours
    SpanRing spans{0};
    std::deque<uint32_t> queue;  // postings with pieces to begin
    uint32_t postings = 0;
  };
  struct Posting {
    Write write;                    // without `further`
    std::vector<Segment> segments;  // all of the write
    uint64_t size_bytes = 0;        // of all of them
    uint64_t number = 0;
    bool to_gpu = false;
    bool from_gpu = false;
    bool ok = true;
    uint64_t next = 0;  // of its bytes
    uint32_t pieces = 0;
    bool is_over() const { return pieces == 0 && (!ok || next == size_bytes); }
    bool is_in_queue() const { return next < size_bytes; }
  };
  /// A part of the segments' bytes, laid end to end as they lie in the rings.
  struct Piece {
    uint32_t posting = 0;
    uint64_t offset_bytes = 0;
    uint64_t size_bytes = 0;
    bool ok = true;
    size_t awaited = 0;           // its runs that are being copied to our ring
    SpanRing::Span span;          // of our ring
    SpanRing::Span remote_span;   // of the owner's
    uint64_t visit = 0;           // Peer::number, when it was taken
    std::optional<uint32_t> way;  // that it was posted to
    bool is_announced = false;
    std::set<uint64_t> unanswered;    // numbers of its runs that were announced
    bool uses_bounce_buffer = false;  // our ring, while it is copied there: gpu::Passage
  };
  /// A domain that writes to GPUs of ours.
  struct Visitor {
    uint32_t line = 0;
    uint64_t number = 0;      // the writer's
    uint64_t connection = 0;  // the writer's, too
    bool is_stranger = false;
    bool has_shown_key = false;  // in a piece, of a region of ours
    Ring ring;
    uint32_t door = 0;   // the wire's door, the only one that writes the ring
    uint64_t order = 0;  // in which visitors came
    uint64_t arrivals = 0;
    bool has_left = false;
    struct Partial {
      uint64_t ended_bytes = 0;
      bool ok = true;
    };
    std::unordered_map<uint64_t, Partial> writes;  // of several pieces
  };
  struct Arrival {
    Record record;
    uint64_t session = 0;
    uint32_t region = 0;
    bool uses_bounce_buffer = false;  // the ring: gpu::Passage
  };

  StagedDomain(std::unique_ptr<Domain> wire, const Options& options)
      : wire_(std::move(wire)),
        traits_(wire_->traits()),
        wide_max_(options.wide_max),
        sealing_(options.secret, wire_->address()) {
    traits_.provider += "+gpu";  // both ends have it, or neither
  }
  Status prepare();

  // domain.cpp
  Result<uint32_t> add_gpu_region(MutableBytes memory, Access access,
                                  std::shared_ptr<gpu::Lane> lane);
  void erase_region(uint32_t number);
  void leave_lanes();
  template <typename Visit>
  void for_each_ring(const Visit& visit);
  void take_copies();
  bool handle_own(const Completion& completion);
  void received(uint32_t buffer, uint64_t size_bytes);
  void match_messages();
  void post_receives();
  Result<uint32_t> add_host_region(MutableBytes memory, const Result<uint32_t>& wire,
                                   std::optional<uint32_t> door);
  std::optional<Ring> take_ring(std::deque<Ring>& spare);
  void reclaim_rings();
  void forget_if_over(uint32_t peer);

  // lines.cpp
  std::optional<uint32_t> find_line(Bytes address);
  Result<uint32_t> line_to(Bytes address, uint8_t version);
  void leave_line(uint32_t line);
  void abandon_line(uint32_t line, Absence absence);
  void close_if_unused(uint32_t line);
  void tell(uint32_t line, const Record& record);
  void talk();
  bool talk(uint32_t line);
  bool has_memory(Line& line);
  std::vector<std::byte> next_message(const Line& line, Send& send, size_t& count);
  std::vector<std::byte> ring_of(const Line& line, Record record) const;
  std::vector<std::byte> greeting_of(const Line& line, const Peer& peer) const;
  void said(uint32_t send, bool ok);
  void given_back(const Send& send);
  void handle(const Message& message, uint8_t version);
  std::optional<uint32_t> line_of(const Record& record, const Message& message);
  bool may_be_unsealed(const Record& record, const Message& message);
  Result<uint32_t> way_to(uint32_t peer, Bytes door, std::span<const Bytes> further);
  void leave_way(std::optional<uint32_t>& way);
  void close_if_over(uint32_t way);

  // writer.cpp
  bool begin(const Write& write, bool to_gpu, const Region& source);
  void open_ring(Peer& peer);
  void greet(uint32_t peer);
  void advance(uint32_t peer);
  bool begin_piece(uint32_t peer, uint32_t posting);
  void copy_to_ring(uint32_t piece);
  static std::vector<Segment> runs_of(const Posting& posting, const Piece& piece);
  bool take_spans(Peer& peer, const Posting& posting, Piece& piece);
  void post_pieces();
  bool post_piece(uint32_t piece);
  std::vector<Segment> wire_segments_of(const Peer& peer, const Posting& posting,
                                        const Piece& piece) const;
  void copied_to_ring(uint32_t piece, bool ok);
  void posted(uint32_t piece, bool ok);
  static bool may_go_on(const Peer& peer, const Posting& posting, const Piece& piece);
  void end_piece(uint32_t piece, bool ok);
  void fail(uint32_t posting);
  void end_if_over(uint32_t posting);
  void break_session(uint32_t peer);
  void handle_ring(const Record& record, const std::vector<std::vector<std::byte>>& doors);
  void leave_ring(uint32_t peer, uint64_t session);
  void handle_done(const Record& record);
  std::optional<uint32_t> peer_of(uint64_t number) const;

  // owner.cpp
  void handle_greeting(const Record& record, Bytes address, uint8_t version);
  std::optional<uint32_t> line_for(Bytes address, uint8_t version);
  bool open_ring(Visitor& visitor);
  void make_room_on(uint32_t line, bool has_shown_key);
  void handle_piece(const Record& record);
  std::optional<uint32_t> region_for(const Record& piece) const;
  void copied_to_gpu(uint32_t arrival, bool ok);
  void end_arrival(uint64_t session, const Record& piece, bool ok);
  void handle_forget(const Record& record);
  void handle_goodbye(const Record& record);
  void end_visits_on(uint32_t line, std::optional<uint64_t> connection);
  void end_visit(uint64_t session, bool is_told);
  void close_ring(Ring ring, uint32_t door, bool is_stranger);

  std::unique_ptr<Domain> wire_;
  std::vector<std::byte> address_;
  Traits traits_;
  const size_t wide_max_;
  Sealing sealing_;
  size_t wide_peers_ = 0;
  std::set<uint32_t> wide_doors_;  // of host memory
  std::shared_ptr<gpu::Ended> ended_ = std::make_shared<gpu::Ended>();
  uint64_t copies_ = 0;  // under way
  std::vector<gpu::Ended::Copy> ended_now_;
  gpu::LaneEnds lane_ends_;
  /// Lanes of contexts without regions. Lanes of primary contexts stay once they are known
  /// as such, since unpinning memory makes the driver wait for the program's streams.
  std::set<std::shared_ptr<gpu::Lane>> leaving_;

  std::unordered_map<uint32_t, Region> regions_;
  std::unordered_map<uint64_t, uint32_t> region_of_key_;        // GPU memory that peers may write
  std::set<uint32_t> draining_;                                 // removed, but being copied to
  std::unordered_map<uint32_t, std::vector<std::byte>> doors_;  // their addresses
  uint32_t next_region_ = 0;

  std::vector<std::byte> receive_memory_;
  uint32_t receive_region_ = 0;
  std::vector<uint32_t> to_receive_;  // buffers to be posted
  struct Waiting {
    uint32_t part;
    uint64_t size_bytes;
  };
  std::deque<Waiting> messages_;  // the user's messages that found no buffer
  struct Buffer {
    MutableBytes memory;
    uint64_t context;
  };
  std::deque<Buffer> buffers_;    // of the user's
  std::deque<Completion> ready_;  // for the user

  std::deque<Ring> spare_local_, spare_remote_;
  struct Closing {
    Ring ring;
    uint32_t door;
    bool is_stranger;
  };
  std::vector<Closing> closing_;  // rings of writers that have gone: writes may still land
  size_t rings_ = 0;
  size_t rings_of_strangers_ = 0;

  uint64_t polls_ = 0;
  Table<Line> lines_;
  std::vector<uint32_t> talking_;
  Table<Send> sends_;
  Table<Peer> peers_;
  Table<Way> ways_;
  std::unordered_map<uint64_t, uint32_t> peer_of_number_;
  std::set<uint32_t> waiting_;  // peers with pieces to begin
  Table<Posting> postings_;
  Table<Piece> pieces_;
  std::deque<uint32_t> to_post_;
  uint64_t next_posting_ = 1;
  uint32_t next_run_ = 1;
  std::unordered_map<uint64_t, Visitor> visitors_;  // by our number
  uint64_t visits_ = 0;                             // ever
  Table<Arrival> arrivals_;
};

}  // namespace braid::fabric::staged
