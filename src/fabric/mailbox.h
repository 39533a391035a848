// Messages of one rail: a pool of receive buffers, and a pool of send buffers. Messages are copied
// in and out, so their buffers are free again soon. A silent peer keeps a few send buffers for as
// long as it is silent; the pool then grows, so that the peer holds up nobody else. The caller
// limits how much it queues. Not safe for concurrent use.
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
    uint32_t tried_rails = 0;  ///< a bit for each rail where it has failed
    bool is_goodbye = false;
  };
  struct Ended {
    bool ok;
    Letter letter;  ///< it has its bytes only if it has failed
  };

  /// Buffers of kMessageBytesMax each. The domain outlives the mailbox's last posting.
  static Result<std::unique_ptr<Mailbox>> open(Domain& domain, size_t receives, size_t sends);

  /// Ended::letter brings its tag back.
  void queue(Letter letter);
  /// Takes out the letters that are queued for this peer, for another mailbox.
  std::vector<Letter> take_queued(uint32_t peer);
  size_t queued() const { return queue_.size(); }
  /// Drops the letters that are still queued for this peer.
  void drop(uint32_t peer);
  /// The number of messages for this peer that are queued or under way.
  size_t count_for(uint32_t peer) const;
  /// True if anything was posted.
  bool post();

  /// The message in the buffer of this completion. Valid until `done_with`.
  Bytes received(const Completion& completion) const;
  void done_with(const Completion& completion);
  Ended sent(const Completion& completion);

 private:
  struct Sending {
    uint32_t peer = 0;
    uint64_t tag = 0;
    uint32_t tried_rails = 0;
    bool is_goodbye = false;
    size_t size_bytes = 0;
  };

  /// The messages for one peer.
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
  bool post(const Letter& letter);

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
