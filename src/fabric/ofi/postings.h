// The writes, messages and buffers that a domain has given to libfabric, until their ends are told.
//
// Several small writes may be a batch (Domain::post_writes). Only the last one asks for
// FI_DELIVERY_COMPLETE. They land in the order of posting (Quirks::lands_in_order), so its end
// tells of those before it: over TCP that saves an answer for each of them, and over shm a round
// trip. A refused write has the same key as the others, so those after it are refused too.
#pragma once

#include <rdma/fabric.h>

#include <deque>
#include <optional>
#include <span>
#include <vector>

#include "fabric/domain.h"
#include "fabric/ofi/peers.h"

namespace braid::fabric::ofi {

/// The context that libfabric gives back with a completion. Its front is libfabric's own.
struct Posting {
  enum class Stage : uint8_t {
    kFree,
    kUnderWay,
    kSent,       ///< libfabric is done with it; the last one of its batch has yet to land
    kTold,       ///< its end is told, and the last one of its batch names it
    kAbandoned,  ///< its end is told, and libfabric may name it
  };
  fi_context2 room;
  Event event;
  uint64_t context;
  uint32_t peer;  ///< of a write or a message
  Stage stage;
  bool awaits_batch;      ///< another one's end tells of it
  bool has_batch_failed;  ///< that was so, while this one was under way
  Posting* before;        ///< in the same batch
};

class Postings {
 public:
  /// `keeps_broken`: see Quirks::keeps_broken_connections.
  Postings(Peers& peers, bool keeps_broken) : peers_(peers), keeps_broken_(keeps_broken) {}
  Postings(const Postings&) = delete;
  Postings& operator=(const Postings&) = delete;

  /// libfabric will be asked to take it. Those `before` it are of the same batch.
  Posting& begin(Event event, uint64_t context, uint32_t peer, Posting* before = nullptr);
  /// libfabric did not take it; the caller may try again. Nobody is told.
  void withdraw(Posting& posting);
  /// libfabric did not take it, and will not. The batch goes on without it.
  void refuse(Posting& posting);
  /// The batch has ended, and this is its last posting that libfabric has taken.
  void end_batch(Posting* last, bool ok);

  /// libfabric has given it back. None: nothing is to be told of it now.
  std::optional<Completion> given_back(Posting& posting, bool ok, uint64_t size_bytes);
  /// Nobody reads the sources of this peer's postings any more, and libfabric gives none back.
  void abandon(uint32_t peer);
  /// libfabric's queue is empty, so it names none of the abandoned ones.
  void free_abandoned();

  void tell(const Completion& completion) { waiting_.push_back(completion); }
  std::deque<Completion>& waiting() { return waiting_; }
  bool has_waiting() const { return !waiting_.empty(); }
  /// Moves what waits to be told to the front of `completions`. Returns how many.
  size_t hand_out(std::span<Completion> completions);

 private:
  void settle(const Posting& posting, bool ok);
  void tell_end(const Posting& posting, bool ok);
  void recycle(Posting& posting);

  Peers& peers_;
  const bool keeps_broken_;
  std::deque<Posting> all_;
  std::vector<Posting*> free_;
  std::vector<Posting*> abandoned_;
  std::deque<Completion> waiting_;
};

}  // namespace braid::fabric::ofi
