// The domain on libfabric: the writes, sends and receives that it posts.
#include <rdma/fi_endpoint.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_rma.h>

#include <algorithm>
#include <array>

#include "fabric/ofi/parts.h"

namespace braid::fabric::ofi {

/// True: the peer was abandoned, so the posting fails at once.
bool OfiDomain::is_gone(uint32_t peer, uint64_t context) {
  if (peers_.at(peer).endpoint != nullptr) return false;
  postings_.tell({Event::kPosted, false, 0, 0, context});
  return true;
}

/// False: the connection is broken, and not all of its postings have come back.
bool OfiDomain::is_ready(Peer& peer) {
  if (!peer.is_broken) return true;
  if (peer.under_way > 0) return false;
  Result<Owned<fid_ep>> own = station_.open_endpoint(provider_, false);
  if (!own.ok()) return false;
  peer.own = std::move(own).value();
  peer.endpoint = peer.own.get();
  peer.is_broken = false;
  return true;
}

/// Returns -FI_EAGAIN also if the call was abandoned.
template <typename Call>
int64_t OfiDomain::call(RobustCalls::Purpose purpose, const Call& function) {
  return calls_ ? calls_->run(purpose, function).value_or(-FI_EAGAIN) : function();
}

/// All are posted in this call. So all go over one connection: libfabric has a new one ready only
/// in a later call. If the queue is full in the middle, nothing tells of those that it has taken
/// until the next one is posted too. It waits for that where a peer has one way for ever, and fails
/// with them where its connection may be another one then.
size_t OfiDomain::post_writes(std::span<const Write> writes) {
  const uint32_t peer = writes.front().peer;
  Posting* taken = nullptr;  // the last one that libfabric has taken
  for (size_t i = 0; i < writes.size(); ++i) {
    const bool is_last = i + 1 == writes.size();
    if (is_gone(peer, writes[i].context)) continue;
    if (!is_ready(peers_.at(peer))) return i;
    Posting& posting = postings_.begin(Event::kPosted, writes[i].context, peer, taken);
    posting.awaits_batch = !is_last;
    const int64_t answer = write(writes[i], posting);
    if (answer == 0) {
      taken = &posting;
    } else if (answer != -FI_EAGAIN) {
      postings_.refuse(posting);
    } else if (taken != nullptr && quirks_.needs_endpoint_for_each_peer) {
      posting.awaits_batch = false;
      held_.push_back({writes[i], {writes[i].further.begin(), writes[i].further.end()}, &posting});
      return i + 1;
    } else {
      postings_.withdraw(posting);
      postings_.end_batch(taken, false);
      return i;
    }
  }
  if (taken != nullptr && taken->awaits_batch) postings_.end_batch(taken, false);
  return writes.size();
}

int64_t OfiDomain::write(const Write& write, Posting& posting) {
  connections_.forget();
  std::array<iovec, kSegmentsMax> sources;
  std::array<void*, kSegmentsMax> descriptors;
  std::array<fi_rma_iov, kSegmentsMax> targets;
  size_t count = 0;
  void* descriptor = descriptor_of(write.region);
  const auto add = [&](Bytes source, uint64_t target_address) {
    sources[count] = {const_cast<std::byte*>(source.data()), source.size()};
    descriptors[count] = descriptor;
    targets[count++] = {target_address, source.size(), write.target_key};
  };
  add(write.source, write.target_address);
  for (const Segment& segment : write.further) add(segment.source, segment.target_address);
  Peer& peer = peers_.at(write.peer);
  fi_msg_rma message{};
  message.msg_iov = sources.data();
  message.desc = descriptors.data();
  message.iov_count = count;
  message.addr = peer.address;
  message.rma_iov = targets.data();
  message.rma_iov_count = count;
  message.context = &posting;
  message.data = write.immediate ? *write.immediate : kNoImmediate;
  message.data |= uint64_t{write.slices - 1} << kSlicesShift;
  const uint64_t flags = FI_COMPLETION |
                         (posting.awaits_batch ? 0 : uint64_t{FI_DELIVERY_COMPLETE}) |
                         (write.immediate || tells_landings_ ? uint64_t{FI_REMOTE_CQ_DATA} : 0);
  const int64_t answer = call(RobustCalls::Purpose::kWrite,
                              [&] { return fi_writemsg(peer.endpoint, &message, flags); });
  if (quirks_.has_doorbells) peer.doorbell.ring(polled_ns_);
  return answer;
}

void OfiDomain::post_held() {
  std::erase_if(held_, [this](Held& held) {
    held.write.further = held.further;
    const int64_t answer = write(held.write, *held.posting);
    if (answer == 0 || answer == -FI_EAGAIN) return answer == 0;
    postings_.end_batch(held.posting->before, false);
    postings_.refuse(*held.posting);
    return true;
  });
}

void OfiDomain::drop_held(uint32_t peer) {
  std::erase_if(held_, [&](const Held& held) {
    if (held.write.peer != peer) return false;
    postings_.end_batch(held.posting->before, false);
    postings_.refuse(*held.posting);
    return true;
  });
}

template <typename Call>
bool OfiDomain::post(Event event, uint64_t context, uint32_t peer, const Call& function) {
  Posting& posting = postings_.begin(event, context, peer);
  const int64_t answer = function(&posting);
  if (quirks_.has_doorbells && event == Event::kPosted) peers_.at(peer).doorbell.ring(polled_ns_);
  if (answer == -FI_EAGAIN)
    postings_.withdraw(posting);
  else if (answer != 0)
    postings_.refuse(posting);
  return answer != -FI_EAGAIN;
}

bool OfiDomain::post_send(uint32_t number, uint32_t region, Bytes bytes, uint64_t context) {
  if (is_gone(number, context)) return true;
  Peer& peer = peers_.at(number);
  if (!is_ready(peer)) return false;
  connections_.forget();
  iovec source{const_cast<std::byte*>(bytes.data()), bytes.size()};
  void* descriptor = descriptor_of(region);
  fi_msg message{};
  message.msg_iov = &source;
  message.desc = &descriptor;
  message.iov_count = 1;
  message.addr = peer.address;
  return post(Event::kPosted, context, number, [&](void* posting) {
    message.context = posting;
    return call(RobustCalls::Purpose::kMessage, [&] {
      return fi_sendmsg(peer.endpoint, &message, FI_COMPLETION | FI_DELIVERY_COMPLETE);
    });
  });
}

bool OfiDomain::post_receive(uint32_t region, MutableBytes buffer, uint64_t context) {
  return post(Event::kReceived, context, 0, [&](void* posting) {
    const auto receive = [&] {
      return fi_recv(station_.endpoint.get(), buffer.data(), buffer.size(), descriptor_of(region),
                     FI_ADDR_UNSPEC, posting);
    };
    if (!calls_) return int64_t{receive()};
    return calls_->run_holding(region_->lock, receive).value_or(-FI_EAGAIN);
  });
}

}  // namespace braid::fabric::ofi
