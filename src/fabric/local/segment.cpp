#include "fabric/local/segment.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

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
  return true;
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

Result<Segment> Segment::create() {
  Segment segment(File(memfd_create("braid-local", MFD_CLOEXEC | MFD_ALLOW_SEALING)));
  // Sealed: neither process can truncate pages that the other reads.
  if (!segment.file_.is_open() || ftruncate(segment.file(), sizeof(Shared)) != 0 ||
      fcntl(segment.file(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW) != 0 || !segment.map())
    return Status::error("local: no memory to share with a peer");
  return segment;
}

Result<Segment> Segment::open(File file) {
  Segment segment(std::move(file));
  struct stat status {};
  const int seals = segment.file_.is_open() ? fcntl(segment.file(), F_GET_SEALS) : -1;
  if (seals < 0 || (seals & F_SEAL_SHRINK) == 0 || fstat(segment.file(), &status) != 0 ||
      status.st_size != static_cast<off_t>(sizeof(Shared)) || !segment.map())
    return Status::error("local: a peer has sent no memory to share");
  return segment;
}

bool Segment::map() {
  void* memory = mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED, file_.get(), 0);
  if (memory == MAP_FAILED) return false;
  madvise(memory, sizeof(Shared), MADV_DONTFORK);
  shared_ = static_cast<Shared*>(memory);
  return true;
}

Segment::~Segment() {
  if (shared_ != nullptr) munmap(shared_, sizeof(Shared));
}

}  // namespace braid::fabric::local
