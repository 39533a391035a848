// Messages of one rail: a pool of buffers that receive, and one that is sent from. A message is
// copied in and out, so its buffers are free again soon. Whoever queues limits what it queues.
// Not safe for concurrent use.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <vector>

#include "fabric/domain.h"

namespace braid::fabric {

class Mailbox {
 public:
  struct Ended {
    uint64_t tag;
    bool ok;
  };

  /// Buffers of kMessageBytesMax each. The domain outlives the mailbox's last posting.
  static Result<std::unique_ptr<Mailbox>> open(Domain& domain, size_t receives, size_t sends);

  /// `tag` comes back when it has ended.
  void queue(uint32_t peer, std::vector<std::byte> message, uint64_t tag);
  size_t queued() const { return queue_.size(); }
  /// What is still queued for this peer will not be sent.
  void drop(uint32_t peer);
  bool is_sending_to(uint32_t peer) const;
  /// True if anything was posted.
  bool post();

  /// A message that lies in the buffer of this completion, until `done_with` it.
  Bytes received(const Completion& completion) const;
  void done_with(const Completion& completion);
  Ended sent(const Completion& completion);

 private:
  struct Queued {
    uint32_t peer;
    std::vector<std::byte> bytes;
    uint64_t tag;
  };

  struct Sending {
    uint32_t peer = 0;
    uint64_t tag = 0;
    bool is_under_way = false;
  };

  Mailbox(Domain& domain, size_t receives, size_t sends);
  MutableBytes buffer(size_t index) const;
  bool post_front();

  Domain& domain_;
  std::unique_ptr<std::byte[]> memory_;
  size_t size_bytes_;
  uint32_t region_ = 0;
  std::vector<size_t> to_receive_;  // buffers to be posted
  std::vector<size_t> to_send_;     // free ones
  std::vector<Sending> sending_;    // by buffer
  std::deque<Queued> queue_;
};

}  // namespace braid::fabric
