#include "multipath/list_ring.h"

namespace braid::multipath {
namespace {

// 8 MB: 3 GB in slices of 64 KB, and 380,000 segments, in flight to one GPU. Larger batches take
// larger slices, or are native.
constexpr size_t kLists = (8 << 20) / sizeof(cuda::SliceList);

}  // namespace

Result<std::unique_ptr<ListRing>> ListRing::open(const cuda::Driver& driver) {
  auto memory = cuda::RegisteredMemory::open(driver, kLists * sizeof(cuda::SliceList),
                                             "the lists of batches");
  if (!memory.ok()) return memory.status();
  return std::unique_ptr<ListRing>(new ListRing(std::move(memory).value()));
}

size_t ListRing::capacity() { return kLists; }

void ListRing::reclaim() {
  while (use_count_ != 0 && uses_[first_use_].is_over()) {
    begin_ = uses_[first_use_].end;
    first_use_ = (first_use_ + 1) % uses_.size();
    --use_count_;
  }
  if (use_count_ == 0) begin_ = end_ = 0;
}

std::span<cuda::SliceList> ListRing::reserve(size_t count) {
  reclaim();
  if (use_count_ == uses_.size()) return {};
  const bool wraps = use_count_ != 0 && end_ <= begin_;  // the free part lies in the middle
  const size_t room = (wraps ? begin_ : kLists) - end_;
  reserved_at_ = end_;
  if (count <= room) return {lists() + end_, count};
  reserved_at_ = 0;
  if (!wraps && count <= begin_) return {lists(), count};
  return {};
}

void ListRing::commit(size_t count, const Ticket& ticket) {
  end_ = reserved_at_ + count;
  uses_[(first_use_ + use_count_) % uses_.size()] = {end_, &ticket, ticket.generation};
  ++use_count_;
}

}  // namespace braid::multipath
