#include "multipath/ticket.h"

#include <sys/mman.h>

#include <atomic>

namespace braid::multipath {
namespace {

// Programs enqueue copies far ahead of the GPU; 256 of them, each over the threshold, are beyond
// what a stream holds in practice. When all are in use the next copy is native.
constexpr size_t kTickets = 256;
constexpr size_t kStride = 256;  // apart in memory, so that transfers do not share a cache line
static_assert(sizeof(cuda::TicketCounters) <= kStride && sizeof(cuda::TicketReport) <= kStride);

}  // namespace

bool Ticket::is_free() const {
  // Acquire: the counts beside the generation were written before it.
  return !retired &&
         std::atomic_ref<uint32_t>(report->generation).load(std::memory_order_acquire) ==
             generation;
}

Result<std::unique_ptr<TicketPool>> TicketPool::open(const cuda::Driver& driver) {
  std::unique_ptr<TicketPool> pool(new TicketPool(driver));
  const Status status = pool->allocate();
  if (!status.ok()) return status;
  return pool;
}

Status TicketPool::allocate() {
  // Memory of ours, registered, rather than the driver's: it outlives the driver when the process
  // exits, so that the statistics can still be read, and a late kernel never writes to freed pages.
  reports_ =
      mmap(nullptr, kTickets * kStride, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (reports_ == MAP_FAILED) {
    reports_ = nullptr;
    return Status::error("no memory for the tickets' reports");
  }
  Status status = driver_.check(
      driver_.cuMemHostRegister(reports_, kTickets * kStride,
                                CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP),
      "registering the tickets' reports");
  if (!status.ok()) return status;
  registered_ = true;
  CUdeviceptr mapped = 0;
  status = driver_.check(driver_.cuMemHostGetDevicePointer(&mapped, reports_, 0),
                         "mapping the tickets' reports");
  if (status.ok() && mapped != reinterpret_cast<CUdeviceptr>(reports_))
    status = Status::error("this GPU cannot use host addresses of registered memory");
  if (!status.ok()) return status;
  status = driver_.check(driver_.cuMemAlloc(&counters_, kTickets * kStride), "allocating tickets");
  if (!status.ok()) return status;
  status = driver_.check(driver_.cuMemsetD8(counters_, 0, kTickets * kStride), "clearing tickets");
  if (!status.ok()) return status;

  tickets_.resize(kTickets);
  for (size_t i = 0; i < kTickets; ++i) {
    tickets_[i].counters = counters_ + i * kStride;
    tickets_[i].report =
        reinterpret_cast<cuda::TicketReport*>(static_cast<char*>(reports_) + i * kStride);
  }
  return {};
}

TicketPool::~TicketPool() {
  if (abandoned_) return;  // the pages stay mapped: a kernel may still write its report
  if (counters_ != 0) driver_.cuMemFree(counters_);
  if (registered_) driver_.cuMemHostUnregister(reports_);
  if (reports_ != nullptr) munmap(reports_, kTickets * kStride);
}

Ticket* TicketPool::find_free() {
  for (size_t tried = 0; tried < tickets_.size(); ++tried) {
    Ticket& ticket = tickets_[next_];
    next_ = (next_ + 1) % tickets_.size();
    if (ticket.is_free()) return &ticket;
  }
  return nullptr;
}

bool TicketPool::all_free() const {
  for (const Ticket& ticket : tickets_)
    if (!ticket.retired && !ticket.is_free()) return false;
  return true;
}

}  // namespace braid::multipath
