#include "fabric/mailbox.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "fabric/wire.h"
#include "fabric/worker.h"

namespace braid::fabric {

Result<std::unique_ptr<Mailbox>> Mailbox::open(Domain& domain, size_t receives, size_t sends) {
  std::unique_ptr<Mailbox> mailbox(new Mailbox(domain, receives, sends));
  const Result<uint32_t> region =
      domain.add_region({mailbox->memory_.get(), mailbox->size_bytes_}, Access::kLocal);
  if (!region.ok()) return region.status();
  mailbox->region_ = region.value();
  mailbox->post();
  return mailbox;
}

Mailbox::Mailbox(Domain& domain, size_t receives, size_t sends)
    : domain_(domain),
      size_bytes_((receives + sends) * kMessageBytesMax),
      sending_(receives + sends) {
  memory_ = std::make_unique_for_overwrite<std::byte[]>(size_bytes_);
  for (size_t i = 0; i < receives; ++i) to_receive_.push_back(i);
  for (size_t i = 0; i < sends; ++i) to_send_.push_back(receives + i);
}

MutableBytes Mailbox::buffer(size_t index) const {
  return {memory_.get() + index * kMessageBytesMax, kMessageBytesMax};
}

void Mailbox::queue(uint32_t peer, std::vector<std::byte> message, uint64_t tag) {
  queue_.push_back({peer, std::move(message), tag});
}

void Mailbox::drop(uint32_t peer) {
  std::erase_if(queue_, [&](const Queued& queued) { return queued.peer == peer; });
}

bool Mailbox::is_sending_to(uint32_t peer) const {
  return std::any_of(sending_.begin(), sending_.end(), [&](const Sending& sending) {
    return sending.is_under_way && sending.peer == peer;
  });
}

bool Mailbox::post() {
  bool posted = false;
  while (!to_receive_.empty() && domain_.post_receive(region_, buffer(to_receive_.back()),
                                                      Worker::kForeign | to_receive_.back())) {
    to_receive_.pop_back();
    posted = true;
  }
  // A peer that is gone may look like a full queue for ever: it must not hold up the others.
  for (size_t left = queue_.size(); left > 0 && !to_send_.empty(); --left) {
    if (post_front()) {
      posted = true;
    } else {
      queue_.push_back(std::move(queue_.front()));
    }
    queue_.pop_front();
  }
  return posted;
}

bool Mailbox::post_front() {
  const Queued& next = queue_.front();
  const size_t index = to_send_.back();
  const MutableBytes whole = buffer(index);
  std::memcpy(whole.data(), next.bytes.data(), next.bytes.size());
  const MutableBytes bytes = whole.first(next.bytes.size());
  if (!domain_.post_send(next.peer, region_, bytes, Worker::kForeign | index)) return false;
  sending_[index] = {next.peer, next.tag, true};
  to_send_.pop_back();
  return true;
}

Bytes Mailbox::received(const Completion& completion) const {
  const Bytes whole = buffer(completion.context & ~Worker::kForeign);
  return whole.first(std::min<uint64_t>(completion.size_bytes, whole.size()));
}

void Mailbox::done_with(const Completion& completion) {
  to_receive_.push_back(completion.context & ~Worker::kForeign);
}

Mailbox::Ended Mailbox::sent(const Completion& completion) {
  const size_t index = completion.context & ~Worker::kForeign;
  to_send_.push_back(index);
  sending_[index].is_under_way = false;
  return {sending_[index].tag, completion.ok};
}

}  // namespace braid::fabric
