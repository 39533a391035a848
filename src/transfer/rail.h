// One rail: a fabric engine with exactly one domain, and its links to rails of other processes.
//
// A link carries writes by the owner's grants and reads by loans. Write: the writer asks the owner
// once for a grant of the buffer around the target; the owner checks the right, and the writer then
// writes one-sidedly. Read: the reader lends its own buffer once; the owner checks the right of
// each read and writes the bytes there, with an immediate that the reader chose. So both use this
// rail, and the owner decides.
//
// Files: to serve a read, the owner reads the file into its own memory, a stage, and writes from
// there into the lent buffer. Bytes that are to be written to a file first go into a stage that
// belongs to the link.
//
// Small slices that are posted together go as one write with many ranges, or, for reads, as one
// write of the owner with one immediate for all. Each slice still has an end of its own. A small
// read that is posted alone is answered by a message that its bytes follow, where a wire answers
// writes (fabric's Traits): nothing is lent or counted for it, and nothing of it lands by itself.
//
// A closed link is fenced here once none of its peer's writes can land in the memory that was
// granted or lent to it. Writes of this side that were under way may land at the owner until the
// owner has closed the link too. Threads: one at a time; nothing blocks; `step` does all work.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "fabric/engine.h"
#include "fabric/slot_map.h"
#include "transfer/backend.h"
#include "transfer/owned.h"
#include "transfer/rail_events.h"
#include "transfer/rail_messages.h"
#include "transfer/stage.h"

namespace braid::transfer {

/// A question without an answer for this long is asked again: either may have been swallowed.
inline constexpr uint64_t kAskAgainNs = 500'000'000;

/// The limit of a write. The scheduler gives it up long before.
inline constexpr uint64_t kLongestNs = 30'000'000'000;

class Rail {
 public:
  /// `owned` must outlive the rail. It says what peers may access.
  static Result<std::unique_ptr<Rail>> open(std::unique_ptr<fabric::Domain> domain,
                                            const Incarnation& self, const fabric::Secret& secret,
                                            std::shared_ptr<fabric::Processes> processes,
                                            Owned& owned);

  /// The engine goes first: until then what peers write still lands in stages.
  ~Rail() { engine_.reset(); }

  const std::string& provider() const { return provider_; }
  /// The address that other processes pass to Rail::dial.
  std::vector<std::byte> address() const;
  uint64_t number() const { return engine_->address().engine; }
  /// The number of the rail with that address.
  Result<uint64_t> number_of(Bytes address) const;

  Status add_buffer(const Buffer& buffer);
  /// Takes back the grants and loans of the buffer. It is in use until `holds_buffer` is false.
  void retire_buffer(uint64_t buffer);
  bool holds_buffer(uint64_t buffer) const { return regions_.contains(buffer); }

  /// The open link with that rail, if there is one. It may not be up yet.
  std::optional<uint64_t> link_to(uint64_t engine) const;
  /// LinkUp or LinkLost will follow. An error now: try again later, unless it is kOtherVersion.
  Result<uint64_t> dial(const Incarnation& who, Bytes address, uint64_t deadline_ns);
  /// Tells the peer, if that is possible. LinkFenced will follow. `is_broken`: work under way on
  /// the link does not end by itself.
  void close(uint64_t link, bool is_broken = false);
  bool is_up(uint64_t link) const;
  /// Neither side has closed it.
  bool is_open(uint64_t link) const;
  /// The peer has asked for memory of this side: it may be using the link.
  bool serves(uint64_t link) const;
  bool has_links() const { return links_.size() > 0; }
  /// Closes the links from rail `engine` of another process, up to that generation. True: nothing
  /// that was sent over them can land any more. False: ask again.
  bool fence_from(uint64_t engine, uint64_t generation, const Incarnation& who);
  uint64_t peer_of(uint64_t link) const;  ///< fabric's number
  /// That peer has fenced a link that is closed here: what is still under way to it ends.
  void fenced_by(uint64_t peer) { engine_->has_shut(peer); }
  uint64_t generation(uint64_t link) const;

  void post(uint64_t link, const Piece& piece);
  /// As Backend::give_up, of a piece that names a file. With a peer of an older version, or if the
  /// answers get lost, the piece ends as any other does.
  void give_up(uint64_t link, uint64_t piece);
  /// `following`: the bytes that come with the message (fabric's Engine::send).
  void send(uint64_t link, const RailMessage& message, Bytes following = {});
  /// LinkAnswers will follow, if the link works.
  void ping(uint64_t link, uint64_t token) { send(link, Ping{token}); }

  bool step(uint64_t now_ns);
  /// Sends messages and posts slices that wait, and looks for no events. True: it has posted some.
  bool push();
  std::vector<RailEvent> take_events() { return std::exchange(events_, {}); }
  uint64_t next_deadline_ns() const;
  bool waits_for_room() const { return engine_->waits_for_room(); }
  std::vector<int> wait_descriptors() { return engine_->wait_descriptors(); }
  bool arm() { return engine_->arm(); }
  /// To be called before the process ends.
  void say_goodbye() { engine_->say_goodbye(); }
  bool has_messages_under_way() const {
    return !marked_.empty() || engine_->has_messages_under_way();
  }

  std::vector<LinkStatistics> statistics() const;

 private:
  /// Permission to write into a buffer of the owner.
  struct Granted {
    uint64_t size_bytes = 0;
    uint64_t target = 0;
    uint64_t grant = 0;  // the owner's number of it
  };
  /// A buffer of this side that the owner may write.
  struct Loan {
    uint64_t grant = 0;
    std::vector<std::byte> descriptor;
    uint64_t asked_ns = 0;
    bool is_confirmed = false;
  };
  /// Reads by the peer of a link, of the files of one folder.
  struct FolderReads {
    std::deque<uint64_t> waiting;  // reads that are not completely cut into parts
    size_t parts = 0;              // of the rail's stage, which its reads hold
    size_t reading = 0;            // those of them for which the file system has not answered
    bool is_in_turn = false;       // in file_readers_
  };
  struct FileReader {
    uint64_t link = 0;
    uint64_t folder = 0;
  };
  struct Outgoing {
    std::vector<std::byte> message;
    std::vector<std::byte> following;
  };
  struct Link {
    uint64_t peer = 0;    // fabric's
    uint64_t engine = 0;  // fabric's number of the other rail
    Incarnation who{};
    bool is_dialled = false;
    bool has_said_hello = false;
    bool has_heard_hello = false;
    bool is_closed = false;
    bool is_shut_there = false;    // the peer has closed its end, and asked for a fence
    uint64_t awaits_hello_ns = 0;  // since then
    uint64_t generation = 0;
    uint64_t their_generation = 0;
    uint16_t version = kVersionOldest;  // that both speak
    std::deque<Outgoing> outbox;        // messages that had no credit
    // For reads and writes of this side.
    std::map<uint64_t, Granted> granted;  // by address
    std::optional<GrantRequest> asked;    // has no answer yet
    uint64_t asked_ns = 0;
    std::unordered_map<uint64_t, Loan> loans;         // by buffer
    std::vector<Piece> waiting;                       // for a grant or a loan
    std::vector<Piece> writes;                        // granted, to be posted at the next push
    std::vector<Piece> reads;                         // lent, to be asked for at the next push
    std::vector<Piece> small_reads;                   // to be asked for at the next push
    std::unordered_map<uint64_t, Piece> small_asked;  // those without an answer, by their numbers
    // For reads and writes of the peer.
    std::unordered_map<uint64_t, fabric::Granted> grants;  // by buffer
    std::unordered_map<uint64_t, uint64_t> lent;           // targets, by number
    size_t lent_max = 64;  // above this size, loans that were taken back are removed from `lent`
    bool has_served_small = false;            // it has asked by SmallRead
    std::vector<Refusal> refusals;            // to be sent
    size_t serving = 0;                       // reads of the peer under way
    std::map<uint64_t, FolderReads> folders;  // by the folder's number in Exports
    size_t stage_parts = 0;                   // parts of the rail's stage that these reads hold
    std::vector<uint64_t> closed_grants;      // not fenced yet
    // Files that this side writes.
    uint64_t stage_asked_ns = 0;  // 0: it has not asked
    uint64_t stage_target = 0;
    std::vector<uint64_t> stage_free;  // offsets
    std::deque<uint64_t> file_pieces;  // pieces with parts that are not written yet
    // Files that the peer writes.
    std::shared_ptr<Stage> stage;
    uint64_t stage_region = 0;
    std::vector<std::byte> stage_descriptor;
    size_t file_writes = 0;       // jobs under way
    std::set<uint64_t> opening;   // tokens of files that are being opened
    std::set<uint64_t> to_write;  // FileWrites whose file is being opened
    bool is_marked = false;       // something is to be sent
    LinkStatistics counts;
  };
  /// A piece of a file that this side writes.
  struct FilePiece {
    Piece piece;
    uint64_t link = 0;
    uint64_t cut_bytes = 0;  // cut into parts so far
    size_t writing = 0;      // parts on their way into the stage
    size_t told = 0;         // parts that the owner is writing to the file
    Cause cause = Cause::kNone;
  };
  struct FilePart {
    uint64_t piece = 0;
    uint64_t offset_bytes = 0, size_bytes = 0;  // in the piece
    uint64_t slot = 0;                          // offset in the stage
    bool is_told = false;                       // it lies in the stage, and the owner was told
  };
  /// A read of a file by the peer.
  struct FileRead {
    uint64_t link = 0;
    uint64_t folder = 0;
    ReadRequest request;
    uint64_t target = 0;
    uint64_t step_bytes = 0;  // of a part
    uint64_t cut_bytes = 0;   // cut into parts so far
    size_t parts = 0;         // that have not ended
    Cause cause = Cause::kNone;
    size_t landing = 0;  // parts that are on their way to the peer
    bool is_refused = false;
  };
  /// Memory for one part of any file.
  struct StagePart {
    std::shared_ptr<Stage> stage;
    uint64_t region = 0;
  };
  struct ReadPart {
    uint64_t read = 0;
    uint64_t offset_bytes = 0, size_bytes = 0;  // in the read
    StagePart memory;
    bool is_landing = false;
  };
  /// A piece that this side has given up, and that has not ended yet.
  struct GivenUp {
    uint64_t link = 0;
    uint64_t piece = 0;
    uint64_t asked_ns = 0;
  };
  /// A slice of this side, or a read of the peer by the reader's number.
  struct Share {
    uint64_t piece = 0;
    uint64_t size_bytes = 0;
  };
  enum class Doing : uint8_t { kWriting, kReading, kServing, kServingFile, kStaging };
  /// The work that a completion of the engine belongs to.
  struct UnderWay {
    Doing doing = Doing::kWriting;
    uint64_t link = 0;
    std::vector<Share> shares;
    uint32_t immediate = 0;
    uint64_t ticket = 0;
    uint64_t part = 0;  // of a file: FilePart or ReadPart
  };
  /// Slices that go as one write.
  struct Gathered {
    uint64_t region = 0;
    uint64_t target = 0;
    uint32_t immediate = 0;
    uint64_t base = 0;  // where the source begins: an address at the owner
    std::vector<fabric::Slice> slices;
    std::vector<Share> shares;
    uint64_t size_bytes = 0;

    bool has_room_for(uint64_t more_bytes) const;
    void add(const fabric::Slice& slice, uint64_t piece);
  };

  Rail(std::unique_ptr<fabric::Engine> engine, const fabric::Traits& wire, const Incarnation& self,
       const fabric::Secret& secret, Owned& owned);

  // rail.cpp: links
  uint64_t add_link(uint64_t peer, uint64_t engine, bool is_dialled);
  void accept_links();
  void lose_failed_links();
  bool awaits_hello_too_long(const Link& link) const;
  void look_after_links();
  void say_hello(uint64_t id, Link& link);
  void lose(uint64_t id, fabric::PeerFailure why, bool is_of_other_version = false);
  void end_link(uint64_t id, bool is_broken);
  bool is_fenced(Link& link);
  void mark(uint64_t id, Link& link);
  void flush(uint64_t id);
  void receive_messages();
  void handle(uint64_t id, const RailMessage& message, Bytes following);
  void handle_hello(uint64_t id, const Hello& hello);
  void take_completions();
  void ended(uint64_t piece, Cause cause, bool may_land = false, bool is_unexplained = false);

  // rail_buffers.cpp
  void look_after_buffers();

  // rail_initiator.cpp: this side reads and writes
  void start(uint64_t id, Link& link, const Piece& piece);
  void start_write(uint64_t id, Link& link, const Piece& piece);
  void start_read(uint64_t id, Link& link, const Piece& piece);
  void start_lent_read(uint64_t id, Link& link, const Piece& piece);
  void lend(uint64_t id, uint64_t buffer, Loan& loan);
  void start_waiting(uint64_t id, Link& link);
  bool has_to_ask(uint64_t& asked_ns) const;
  void post_writes(uint64_t id, Link& link);
  void post_reads(uint64_t id, Link& link);
  void await_reads(uint64_t request);
  static uint64_t immediates_of(const UnderWay& reads);
  static const std::pair<const uint64_t, Granted>* find_granted(const Link& link,
                                                                const Piece& piece);
  bool take_grant(Link& link, const GrantAnswer& answer);
  void take_answer(uint64_t id, Link& link, const GrantAnswer& answer);
  void take_answer(uint64_t id, Link& link, const Lent& answer);
  void take_refusals(Link& link, const Refused& refused);
  void write_ended(const UnderWay& write, bool is_done);
  void read_ended(uint64_t request, Cause cause);
  void read_refused(uint64_t request, const Refusal& refusal);
  uint64_t offset_in_buffer(const Piece& piece) const;
  Result<uint64_t> write(const Gathered& write, std::optional<uint32_t> immediate);

  // rail_small_reads.cpp: reads of either side whose bytes follow the answer
  bool goes_in_message(const Link& link, const Piece& piece) const;
  void post_small_reads(uint64_t id, Link& link);
  void take_answer(uint64_t id, Link& link, const SmallReadAnswer& answer, Bytes bytes);
  void serve(Link& link, const SmallRead& read);

  // rail_owner.cpp: the peer reads and writes
  void grant(Link& link, const GrantRequest& request);
  void borrow(Link& link, const Lend& lend);
  void forget_what_was_taken_back(Link& link) const;
  void serve(uint64_t id, Link& link, const Reads& reads);
  Cause find(const Link& link, const ReadRequest& read, Gathered& found);
  void serve(uint64_t id, Link& link, const Gathered& reads);
  void refuse(uint64_t id, Link& link, uint64_t read, Cause cause);
  void served(const UnderWay& read, bool is_done);

  // rail_files.cpp: this side or the peer writes files
  void start_file_write(uint64_t id, Link& link, const Piece& piece);
  void write_parts(uint64_t id, Link& link);
  void part_staged(const UnderWay& part, bool is_done);
  void take_answer(uint64_t id, Link& link, const StageAnswer& answer);
  void take_answer(uint64_t id, Link& link, const FileWritten& answer);
  void end_file_piece_if_over(uint64_t piece);
  void end_file_pieces(uint64_t id);
  void open_file(uint64_t id, Link& link, const FileOpen& request);
  void make_stage(uint64_t id, Link& link);
  void write_file(uint64_t id, Link& link, const FileWrite& write);
  void begin_file_write(uint64_t id, const FileWrite& write, Cause wrong,
                        const OpenFilePointer& file);

  // rail_file_reads.cpp: files that the peer reads
  Cause serve_file(uint64_t id, Link& link, const ReadRequest& read);
  void put_in_turn(const FileReader& reader);
  void read_files();
  bool may_take_part(const Link& link, const FolderReads& folder) const;
  bool read_next_part(Link& link, FolderReads& folder);
  void start_part(Link& link, FolderReads& folder, OpenFilePointer file, StagePart memory);
  void reopen(uint64_t read, const Link& link);
  StagePart take_stage_part();
  void part_read(uint64_t part, Cause cause);
  void part_served(const UnderWay& part, bool is_done);
  void end_read_part(uint64_t part, Cause cause);
  void end_read_if_over(uint64_t read);
  void end_file_reads(Link& link);

  // rail_giving_up.cpp: file systems that do not answer
  void end_unless_under_way(Link& link, uint64_t piece);
  bool say_given_up(uint64_t id, uint64_t piece);
  void look_after_given_up();
  void given_up(uint64_t id, const ReadGivenUp& read);
  void given_up(uint64_t id, Link& link, const WriteGivenUp& write);

  std::unique_ptr<fabric::Engine> engine_;
  Incarnation self_;
  fabric::Secret secret_;
  Owned& owned_;
  const Buffers& buffers_;
  std::string provider_;
  bool answers_writes_;  // the wire does
  uint64_t now_ns_ = 0;
  uint64_t generations_ = 0;
  uint64_t tokens_ = 0;
  fabric::SlotMap<Link> links_;
  std::unordered_map<uint64_t, uint64_t> link_of_peer_;
  std::vector<uint64_t> unsettled_;  // links that are not up yet, or closed and not fenced
  std::vector<uint64_t> marked_;     // links with something to send
  std::unordered_map<uint64_t, uint64_t> regions_;  // by buffer
  std::vector<uint64_t> retired_;                   // buffers
  fabric::SlotMap<UnderWay> under_way_;             // by request
  std::unordered_map<uint64_t, uint64_t> reading_;  // requests, by piece
  std::vector<RailEvent> events_;
  std::vector<GivenUp> given_up_;
  fabric::SlotMap<FilePiece> file_pieces_;
  fabric::SlotMap<FilePart> file_parts_;
  fabric::SlotMap<FileRead> file_reads_;
  fabric::SlotMap<ReadPart> read_parts_;
  std::deque<FileReader> file_readers_;  // who has file reads that are not completely cut, in turn
  std::vector<StagePart> stage_parts_;   // the free ones
  size_t stage_parts_held_ = 0;          // the number that links hold
};

}  // namespace braid::transfer
