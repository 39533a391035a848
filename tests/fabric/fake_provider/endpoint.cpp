#include "fabric/fake_provider/endpoint.h"

#include <rdma/fi_errno.h>

#include <algorithm>
#include <cstring>
#include <numeric>

namespace braid::fabric::fake {
namespace {

constexpr size_t kPieceBytesMin = 256, kPieceBytesMax = 8 << 10, kPiecesAtLeast = 4;
constexpr size_t kPostingsAtOnce = 8;  // whose pieces are mixed
constexpr size_t kPiecesInALook = 32;

/// Small writes come in pieces too.
size_t piece_bytes_of(size_t size_bytes) {
  return std::clamp((size_bytes / kPiecesAtLeast + 63) / 64 * 64, kPieceBytesMin, kPieceBytesMax);
}

}  // namespace

void Gathered::add(const void* memory, size_t part_bytes, const void* descriptor) {
  parts.push_back({static_cast<std::byte*>(const_cast<void*>(memory)), part_bytes, descriptor});
  size_bytes += part_bytes;
}

void Gathered::copy_out(size_t offset_bytes, std::span<std::byte> into) const {
  for (const Part& part : parts) {
    if (offset_bytes < part.size_bytes && !into.empty()) {
      const size_t count = std::min(into.size(), part.size_bytes - offset_bytes);
      std::memcpy(into.data(), part.memory + offset_bytes, count);
      into = into.subspan(count);
      offset_bytes = part.size_bytes;
    }
    offset_bytes -= std::min(offset_bytes, part.size_bytes);
  }
}

void Gathered::copy_in(size_t offset_bytes, std::span<const std::byte> from) {
  for (const Part& part : parts) {
    if (offset_bytes < part.size_bytes && !from.empty()) {
      const size_t count = std::min(from.size(), part.size_bytes - offset_bytes);
      std::memcpy(part.memory + offset_bytes, from.data(), count);
      from = from.subspan(count);
      offset_bytes = part.size_bytes;
    }
    offset_bytes -= std::min(offset_bytes, part.size_bytes);
  }
}

Endpoint::Endpoint(Nic& its_nic, const fi_info& info)
    : fid_ep{}, nic(its_nic), postings_max_(info.tx_attr->size), receives_max_(info.rx_attr->size) {
  nic.members.insert(this);
}

Endpoint::~Endpoint() { nic.members.erase(this); }

void Endpoint::close() {
  is_closed_ = true;
  nic.members.erase(this);
  port.close();
  nic.closed.emplace_back(this);
}

// ---- Postings ----

int Endpoint::post(Posting posting) {
  if (nic.manners.has_connections && state != State::kConnected && state != State::kBroken)
    return -FI_EOPBADSTATE;
  if (postings_.size() >= postings_max_) return -FI_EAGAIN;
  if (posting.is_injected || (posting.flags & FI_INJECT) != 0) {
    posting.copy.resize(posting.memory.size_bytes);
    posting.memory.copy_out(0, posting.copy);
    posting.memory = {};
    posting.memory.add(posting.copy.data(), posting.copy.size(), nullptr);
    posting.needs_descriptors = false;
  }
  posting.flags &= ~uint64_t{FI_INJECT};
  const bool is_request = posting.kind == Kind::kRead;
  posting.piece_bytes =
      posting.kind == Kind::kSend ? kPieceBytesMax : piece_bytes_of(posting.memory.size_bytes);
  posting.pieces =
      is_request
          ? 1
          : static_cast<uint32_t>(std::max<size_t>(
                1, (posting.memory.size_bytes + posting.piece_bytes - 1) / posting.piece_bytes));
  posting.unsent.resize(posting.pieces);
  std::iota(posting.unsent.begin(), posting.unsent.end(), 0);
  std::shuffle(posting.unsent.begin(), posting.unsent.end(), nic.random);
  if (posting.kind == Kind::kSend) posting.sequence = next_sequence_++;
  const uint64_t number = next_posting_++;
  postings_.emplace(number, std::move(posting));
  if (state == State::kBroken) end(number, Outcome::kFlushed);
  nic.wake();
  return 0;
}

int Endpoint::post_receive(const Gathered& buffer, void* context) {
  if (receives_.size() >= receives_max_) return -FI_EAGAIN;
  receives_.push_back({buffer, context});
  if (state == State::kBroken)
    break_off(Outcome::kFlushed);
  else
    deliver();
  return 0;
}

bool Endpoint::progress() {
  port.flush();
  const bool received = receive_all();
  const bool sent = send_pieces();
  ping();
  return received || sent;
}

/// Pieces of several postings, in any order.
bool Endpoint::send_pieces() {
  std::set<std::string> full;
  bool any = false;
  for (size_t i = 0; i < kPiecesInALook; ++i) {
    std::vector<uint64_t> open;
    for (auto& [number, posting] : postings_) {
      if (!posting.unsent.empty() && !full.contains(posting.to)) open.push_back(number);
      if (open.size() == kPostingsAtOnce) break;
    }
    if (open.empty()) break;
    const uint64_t number = open[nic.random() % open.size()];
    const std::string to = postings_.at(number).to;
    const Sent sent = send_piece(number, postings_.at(number));
    any = any || sent == Sent::kYes;
    if (sent == Sent::kFull) full.insert(to);
    if (sent == Sent::kGone) peer_is_gone(to);
  }
  return any;
}

bool Endpoint::is_covered(const Gathered& memory) const {
  return std::all_of(memory.parts.begin(), memory.parts.end(), [&](const Gathered::Part& part) {
    return nic.regions.covers(part.descriptor, part.memory, part.size_bytes);
  });
}

Sent Endpoint::send_piece(uint64_t number, Posting& posting) {
  if (posting.needs_descriptors && !is_covered(posting.memory)) {
    end(number, Outcome::kLocalProtection);
    return Sent::kYes;
  }
  const uint32_t piece = posting.unsent.back();
  Header header;
  header.kind = posting.kind;
  header.has_immediate = posting.immediate.has_value();
  header.immediate = posting.immediate.value_or(0);
  header.pieces = posting.pieces;
  header.posting = number;
  header.answers = posting.answers;
  header.sequence = posting.sequence;
  header.address = posting.address;
  header.key = posting.key;
  header.size_bytes = posting.memory.size_bytes;
  header.offset_bytes = piece * posting.piece_bytes;
  std::vector<std::byte> bytes;
  if (posting.kind != Kind::kRead)
    bytes.resize(std::min(posting.piece_bytes, header.size_bytes - header.offset_bytes));
  posting.memory.copy_out(header.offset_bytes, bytes);
  const Sent sent = port.send(posting.to, header, bytes);
  if (sent == Sent::kYes) posting.unsent.pop_back();
  return sent;
}

// ---- Ends ----

void Endpoint::end(uint64_t number, Outcome outcome) {
  const auto found = postings_.find(number);
  if (found == postings_.end()) return;
  const Posting posting = std::move(found->second);
  postings_.erase(found);
  complete(posting, outcome);
  const bool breaks = outcome != Outcome::kOk && outcome != Outcome::kFlushed;
  if (breaks && nic.manners.has_connections) break_off(Outcome::kFlushed);
}

void Endpoint::complete(const Posting& posting, Outcome outcome) {
  if (posting.kind == Kind::kReadReply || sends_to == nullptr) return;
  if (posting.is_injected && outcome == Outcome::kOk) return;
  CompletionQueue::Entry entry;
  entry.data.op_context = posting.context;
  entry.data.flags = posting.flags;
  entry.outcome = outcome;
  if (!posting.is_injected) sends_to->push(entry);
}

/// As a queue pair in its error state: what is posted, and what will be, comes back.
void Endpoint::break_off(Outcome outcome) {
  if (state == State::kConnected) {
    Header header;
    header.kind = Kind::kBreak;
    port.queue(peer, header);
  }
  state = State::kBroken;
  incoming_.clear();
  early_.clear();
  arrivals_.clear();
  while (!postings_.empty()) {
    const Posting posting = std::move(postings_.begin()->second);
    postings_.erase(postings_.begin());
    complete(posting, outcome);
  }
  for (; !receives_.empty(); receives_.pop_front()) {
    CompletionQueue::Entry entry;
    entry.data.op_context = receives_.front().context;
    entry.data.flags = FI_RECV | FI_MSG;
    entry.outcome = outcome;
    if (receives_to != nullptr) receives_to->push(entry);
  }
}

void Endpoint::peer_is_gone(const std::string& whom) {
  if (nic.manners.has_connections) {
    const bool was_connecting = state == State::kConnecting;
    const bool is_news = !is_alone_;
    break_off(Outcome::kPeerGone);
    is_alone_ = true;
    EventQueue::Event event;
    event.about = &fid;
    event.number = FI_SHUTDOWN;
    event.error = was_connecting ? FI_ECONNREFUSED : 0;
    if (events != nullptr && is_news) events->push(std::move(event));
    return;
  }
  std::vector<uint64_t> lost;
  for (const auto& [number, posting] : postings_)
    if (posting.to == whom) lost.push_back(number);
  for (const uint64_t number : lost) end(number, Outcome::kPeerGone);
}

/// Whoever owes an answer may have ended since.
void Endpoint::ping() {
  constexpr auto kPause = std::chrono::milliseconds(10);
  const bool has_peer = state != State::kIdle && !is_alone_;
  if ((!has_peer && postings_.empty()) || Clock::now() - pinged_ < kPause) return;
  pinged_ = Clock::now();
  std::set<std::string> asked;
  if (has_peer) asked.insert(peer);
  for (const auto& [number, posting] : postings_) asked.insert(posting.to);
  for (const std::string& whom : asked)
    if (port.send(whom, Header{}, {}) == Sent::kGone) peer_is_gone(whom);
}

}  // namespace braid::fabric::fake
