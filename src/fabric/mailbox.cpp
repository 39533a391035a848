#include "fabric/mailbox.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "fabric/wire.h"
#include "fabric/worker.h"

namespace braid::fabric {

Result<std::unique_ptr<Mailbox>> Mailbox::open(Domain& domain, size_t receives, size_t sends) {
  std::unique_ptr<Mailbox> mailbox(new Mailbox(domain, receives, sends));
  if (Status failed = mailbox->add_block(receives); !failed.ok()) return failed;
  mailbox->post();
  return mailbox;
}

/// The first `receives` buffers of the block receive; the others send.
Status Mailbox::add_block(size_t receives) {
  const size_t size_bytes = block_buffers_ * kMessageBytesMax;
  Block block{std::make_unique_for_overwrite<std::byte[]>(size_bytes), 0};
  const Result<uint32_t> region =
      domain_.add_region({block.memory.get(), size_bytes}, Access::kLocal);
  if (!region.ok()) return region.status();
  block.region = region.value();
  const size_t first = blocks_.size() * block_buffers_;
  blocks_.push_back(std::move(block));
  sending_.resize(first + block_buffers_);
  for (size_t i = 0; i < block_buffers_; ++i)
    (i < receives ? to_receive_ : to_send_).push_back(first + i);
  return {};
}

MutableBytes Mailbox::buffer(size_t index) const {
  const Block& block = blocks_[index / block_buffers_];
  return {block.memory.get() + index % block_buffers_ * kMessageBytesMax, kMessageBytesMax};
}

void Mailbox::queue(Letter letter) {
  ++loads_[letter.peer].queued;
  queue_.push_back(std::move(letter));
}

void Mailbox::drop(uint32_t peer) { (void)take_queued(peer); }

std::vector<Mailbox::Letter> Mailbox::take_queued(uint32_t peer) {
  std::vector<Letter> taken;
  const auto load = loads_.find(peer);
  if (load == loads_.end() || load->second.queued == 0) return taken;
  std::erase_if(queue_, [&](Letter& letter) {
    if (letter.peer == peer) taken.push_back(std::move(letter));
    return letter.peer == peer;
  });
  load->second.queued = 0;
  unload(peer);
  return taken;
}

size_t Mailbox::count_for(uint32_t peer) const {
  const auto load = loads_.find(peer);
  return load == loads_.end() ? 0 : load->second.queued + load->second.sending;
}

void Mailbox::unload(uint32_t peer) {
  if (count_for(peer) == 0) loads_.erase(peer);
}

bool Mailbox::post() {
  constexpr size_t kBlocksMax = 256;
  bool posted = false;
  while (!to_receive_.empty() &&
         domain_.post_receive(region_of(to_receive_.back()), buffer(to_receive_.back()),
                              Worker::kForeign | to_receive_.back())) {
    to_receive_.pop_back();
    posted = true;
  }
  if (!queue_.empty() && to_send_.empty() && blocks_.size() < kBlocksMax) (void)add_block(0);
  // A peer that is gone may look like a full queue for ever: it must not hold up the others.
  auto kept = queue_.begin();
  auto letter = kept;
  for (; letter != queue_.end() && !to_send_.empty(); ++letter) {
    if (post(*letter)) {
      posted = true;
      continue;
    }
    if (kept != letter) *kept = std::move(*letter);
    ++kept;
  }
  queue_.erase(kept, letter);
  return posted;
}

bool Mailbox::post(const Letter& letter) {
  Load& load = loads_.at(letter.peer);
  if (load.sending >= sending_max_) return false;
  const size_t index = to_send_.back();
  const MutableBytes whole = buffer(index);
  std::memcpy(whole.data(), letter.bytes.data(), letter.bytes.size());
  const MutableBytes bytes = whole.first(letter.bytes.size());
  if (!domain_.post_send(letter.peer, region_of(index), bytes, Worker::kForeign | index))
    return false;
  sending_[index] = {letter.peer, letter.tag, letter.tried_rails, letter.is_goodbye,
                     letter.bytes.size()};
  to_send_.pop_back();
  --load.queued;
  ++load.sending;
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
  const Sending sent = sending_[index];
  to_send_.push_back(index);
  --loads_.at(sent.peer).sending;
  unload(sent.peer);
  Ended ended{completion.ok, {sent.peer, {}, sent.tag, sent.tried_rails, sent.is_goodbye}};
  const Bytes bytes = buffer(index).first(sent.size_bytes);
  if (!ended.ok) ended.letter.bytes.assign(bytes.begin(), bytes.end());
  return ended;
}

}  // namespace braid::fabric
