#include "fabric/local/segment.h"

#include <algorithm>
#include <cstring>

namespace braid::fabric::local {
namespace {

struct Header {
  uint32_t kind;
  uint32_t size_bytes;
};

uint64_t padded(uint64_t size_bytes) {
  return (sizeof(Header) + size_bytes + sizeof(Header) - 1) / sizeof(Header) * sizeof(Header);
}

Bytes bytes_of(const Header& header) {
  return {reinterpret_cast<const std::byte*>(&header), sizeof header};
}

}  // namespace

bool Producer::put(uint32_t kind, Bytes first, Bytes second) {
  const uint64_t size_bytes = first.size() + second.size();
  const uint64_t used = tail_ - queue_->head.load(std::memory_order_acquire);
  if (used > kQueueBytes || padded(size_bytes) > kQueueBytes - used) return false;
  const Header header{kind, static_cast<uint32_t>(size_bytes)};
  write(tail_, bytes_of(header));
  write(tail_ + sizeof header, first);
  write(tail_ + sizeof header + first.size(), second);
  tail_ += padded(size_bytes);
  queue_->tail.store(tail_, std::memory_order_release);
  has_put_ = true;
  return true;
}

bool Producer::has_to_ring() {
  if (!std::exchange(has_put_, false)) return false;
  __sync_synchronize();  // the tail is seen, or the sleeper; GCC refuses std's under TSAN
  return queue_->is_asleep.load(std::memory_order_relaxed) != 0 &&
         queue_->is_asleep.exchange(0, std::memory_order_relaxed) != 0;
}

bool Consumer::fall_asleep() {
  queue_->is_asleep.store(1, std::memory_order_relaxed);
  __sync_synchronize();  // as in Producer::has_to_ring
  if (queue_->tail.load(std::memory_order_acquire) == head_) return true;
  wake_up();
  return false;
}

void Producer::write(uint64_t at, Bytes bytes) {
  if (bytes.empty()) return;
  const uint64_t begin = at % kQueueBytes;
  const uint64_t until_end = std::min<uint64_t>(bytes.size(), kQueueBytes - begin);
  std::memcpy(queue_->bytes + begin, bytes.data(), until_end);
  std::memcpy(queue_->bytes, bytes.data() + until_end, bytes.size() - until_end);
}

std::optional<Consumer::Record> Consumer::take() {
  const uint64_t used = queue_->tail.load(std::memory_order_acquire) - head_;
  if (used == 0 || is_broken_) return std::nullopt;
  Header header{};
  is_broken_ = used < sizeof header || used > kQueueBytes;
  if (is_broken_) return std::nullopt;
  read(head_, {reinterpret_cast<std::byte*>(&header), sizeof header});
  is_broken_ = header.size_bytes > kQueueBytes || padded(header.size_bytes) > used;
  if (is_broken_) return std::nullopt;
  Record record{header.kind, std::vector<std::byte>(header.size_bytes)};
  read(head_ + sizeof header, record.bytes);
  head_ += padded(header.size_bytes);
  queue_->head.store(head_, std::memory_order_release);
  return record;
}

void Consumer::read(uint64_t at, MutableBytes bytes) const {
  if (bytes.empty()) return;
  const uint64_t begin = at % kQueueBytes;
  const uint64_t until_end = std::min<uint64_t>(bytes.size(), kQueueBytes - begin);
  std::memcpy(bytes.data(), queue_->bytes + begin, until_end);
  std::memcpy(bytes.data() + until_end, queue_->bytes, bytes.size() - until_end);
}

Result<CreatedSegment> CreatedSegment::create() {
  Result<SharedPages> made = make_shared_pages(sizeof(Shared), {"braid-local", true, false});
  if (!made.ok()) return Status::error("local: no memory to share with a peer");
  SharedPages& pages = made.value();
  return CreatedSegment{Segment(std::move(pages.pages)), std::move(pages.file)};
}

Result<Segment> Segment::open(const File& file) {
  Result<MappedPages> pages = map_shared_pages(file, 0, sizeof(Shared), true);
  if (!pages.ok()) return Status::error("local: a peer has sent no memory to share");
  return Segment(std::move(pages).value());
}

}  // namespace braid::fabric::local
