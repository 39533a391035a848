// Messages of one rail: a pool of buffers that receive, and one that is sent from. A message is
// copied in and out, so its buffers are free again soon. A peer that is silent keeps a few of those
// that are sent from, for as long as it is silent: the pool grows then, so that it holds up nobody
// else. Whoever queues limits what it queues. Not safe for concurrent use.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <unordered_map>
#include <vector>

#include "fabric/domain.h"

namespace braid::fabric {

class Mailbox {
 public:
  /// A message that has not been delivered.
  struct Letter {
    uint32_t peer = 0;
    std::vector<std::byte> bytes;
    uint64_t tag = 0;
    uint32_t tried_rails = 0;  ///< a bit for each where it has failed
  };
  struct Ended {
    bool ok;
    Letter letter;  ///< its bytes only if it has failed
  };

  /// Buffers of kMessageBytesMax each. The domain outlives the mailbox's last posting.
  static Result<std::unique_ptr<Mailbox>> open(Domain& domain, size_t receives, size_t sends);

  /// Its tag comes back when it has ended.
  void queue(Letter letter);
  /// What is queued for this peer, for another mailbox.
  std::vector<Letter> take_queued(uint32_t peer);
  size_t queued() const { return queue_.size(); }
  /// What is still queued for this peer will not be sent.
  void drop(uint32_t peer);
  /// Messages for this peer that are queued, or have not been delivered.
  size_t count_for(uint32_t peer) const;
  /// True if anything was posted.
  bool post();

  /// A message that lies in the buffer of this completion, until `done_with` it.
  Bytes received(const Completion& completion) const;
  void done_with(const Completion& completion);
  Ended sent(const Completion& completion);

 private:
  struct Sending {
    uint32_t peer = 0;
    uint64_t tag = 0;
    uint32_t tried_rails = 0;
    size_t size_bytes = 0;
  };

  /// What there is for a peer.
  struct Load {
    size_t queued = 0;
    size_t sending = 0;
  };
  struct Block {
    std::unique_ptr<std::byte[]> memory;
    uint32_t region;
  };

  Mailbox(Domain& domain, size_t receives, size_t sends)
      : domain_(domain), block_buffers_(receives + sends), sending_max_((sends + 3) / 4) {}
  Status add_block(size_t receives);
  MutableBytes buffer(size_t index) const;
  uint32_t region_of(size_t index) const { return blocks_[index / block_buffers_].region; }
  void unload(uint32_t peer);
  bool post_front();

  Domain& domain_;
  size_t block_buffers_;
  size_t sending_max_;  // to one peer
  std::vector<Block> blocks_;
  std::vector<size_t> to_receive_;  // buffers to be posted
  std::vector<size_t> to_send_;     // free ones
  std::vector<Sending> sending_;    // by buffer
  std::deque<Letter> queue_;
  std::unordered_map<uint32_t, Load> loads_;  // by peer; no empty ones
};

}  // namespace braid::fabric
