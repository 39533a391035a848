#include "multipath/ticket.h"

#include <atomic>

#include "cuda/zeroed_memory.h"

namespace braid::multipath {
namespace {

constexpr size_t kStride = 256;  // apart in memory, so that transfers do not share a cache line
constexpr size_t kAll = kTickets + 1;
constexpr size_t kAllBytes = kAll * kStride;
static_assert(sizeof(cuda::TicketCounters) <= kStride && sizeof(cuda::TicketReport) <= kStride);

}  // namespace

bool Ticket::is_free() const {
  // Acquire: the counts beside the generation were written before it.
  return !retired &&
         std::atomic_ref<uint32_t>(report->generation).load(std::memory_order_acquire) ==
             generation;
}

void Ticket::begin_use(Direction which, const SlicedBytes& what, uint64_t now_ns) {
  direction = which;
  bytes = what;
  launched_ns = now_ns;
  path_count = 1;
  lane_paths[0] = 0;
  unread = true;
  is_orphan = false;
}

Result<std::unique_ptr<TicketPool>> TicketPool::open(const cuda::Driver& driver) {
  std::unique_ptr<TicketPool> pool(new TicketPool(driver));
  const Status status = pool->allocate();
  if (!status.ok()) return status;
  return pool;
}

Status TicketPool::allocate() {
  auto reports = cuda::RegisteredMemory::open(driver_, 2 * kAllBytes, "the tickets' reports");
  if (!reports.ok()) return reports.status();
  reports_ = std::move(reports).value();
  const auto counters = cuda::allocate_zeroed(driver_, kAllBytes, "tickets");
  if (!counters.ok()) return counters.status();
  counters_ = counters.value();

  tickets_.resize(kAll);
  for (size_t i = 0; i < kAll; ++i) {
    tickets_[i].counters = counters_ + i * kStride;
    tickets_[i].report =
        reinterpret_cast<cuda::TicketReport*>(static_cast<char*>(reports_->data()) + i * kStride);
  }
  return {};
}

TicketPool::~TicketPool() {
  if (!abandoned_ && counters_ != 0) driver_.cuMemFree(counters_);
}

void TicketPool::abandon() {
  abandoned_ = true;
  reports_->abandon();
}

Ticket* TicketPool::find_free() {
  for (size_t tried = 0; tried < kTickets; ++tried) {
    Ticket& ticket = tickets_[next_];
    next_ = (next_ + 1) % kTickets;
    if (ticket.is_free()) return &ticket;
  }
  return nullptr;
}

CUresult TicketPool::read_counters(CUstream stream) const {
  return driver_.cuMemcpyDtoHAsync(static_cast<char*>(reports_->data()) + kAllBytes, counters_,
                                   kAllBytes, stream);
}

const cuda::TicketCounters& TicketPool::seen(const Ticket& ticket) const {
  const auto* all = static_cast<const char*>(reports_->data()) + kAllBytes;
  return *reinterpret_cast<const cuda::TicketCounters*>(all + (ticket.counters - counters_));
}

bool TicketPool::all_free() const {
  for (const Ticket& ticket : tickets_)
    if (ticket.is_in_use()) return false;
  return true;
}

}  // namespace braid::multipath
