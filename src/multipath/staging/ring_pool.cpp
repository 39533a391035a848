#include "multipath/staging/ring_pool.h"

#include <algorithm>
#include <chrono>
#include <thread>

namespace braid::multipath::staging {
namespace {

// How long a context that ends gives transfers out of its rings.
constexpr std::chrono::seconds kDrainLimit{5};

}  // namespace

RingPool::Loan::~Loan() {
  if (entry_ == nullptr) return;
  const std::lock_guard lock(pool_->mutex_);
  entry_->is_lent = false;
}

Ring& RingPool::Loan::operator*() const { return entry_->ring; }

RingPool::Loan RingPool::borrow(CUcontext context, const StreamKey& stream) {
  bool is_new = false;
  std::shared_ptr<Entry> entry = choose(context, stream, is_new);
  if (entry == nullptr) return {};
  Loan loan(*this, entry);
  if (is_new && !entry->ring.open().ok()) return {};
  return loan;
}

std::shared_ptr<RingPool::Entry> RingPool::choose(CUcontext context, const StreamKey& stream,
                                                  bool& is_new) {
  const std::lock_guard lock(mutex_);
  std::shared_ptr<Entry> chosen;
  int count = 0;
  for (const auto& entry : entries_) {
    if (entry->ring.context() != context) continue;
    ++count;
    if (entry->is_lent || entry->ring.is_broken()) continue;
    if (entry->stream == stream) {
      chosen = entry;
      break;
    }
    if (chosen == nullptr && entry->ring.is_idle()) chosen = entry;
  }
  if (chosen == nullptr && count < kRingsPerContext) {
    chosen = std::make_shared<Entry>(driver_, context);
    entries_.push_back(chosen);
    is_new = true;
  }
  if (chosen == nullptr) return nullptr;
  chosen->is_lent = true;
  chosen->stream = stream;
  return chosen;
}

void RingPool::forget_context(CUcontext context, ContextRegistry::End how) {
  Entries ending;
  {
    const std::lock_guard lock(mutex_);
    const auto is_other = [&](const auto& entry) { return entry->ring.context() != context; };
    const auto first = std::stable_partition(entries_.begin(), entries_.end(), is_other);
    ending.assign(first, entries_.end());
    entries_.erase(first, entries_.end());
  }
  retire(ending);
  if (how == ContextRegistry::End::kReleased) return;
  for (const auto& entry : ending) {
    Ring& ring = entry->ring;
    if (ring.is_abandoned() || ring.is_broken() || !ring.is_idle())
      ring.abandon();
    else
      ring.leave_to_context();
  }
}

void RingPool::close() {
  Entries ending;
  {
    const std::lock_guard lock(mutex_);
    ending.swap(entries_);
  }
  retire(ending);
}

void RingPool::retire(const Entries& entries) {
  const auto deadline = std::chrono::steady_clock::now() + kDrainLimit;
  for (const auto& entry : entries) {
    const std::lock_guard lock(mutex_);
    if (entry->is_lent) entry->ring.abandon();
  }
  for (const auto& entry : entries)
    while (!entry->ring.is_abandoned() && !entry->ring.is_broken() && !entry->ring.is_idle() &&
           std::chrono::steady_clock::now() < deadline)
      std::this_thread::sleep_for(std::chrono::microseconds(200));
}

}  // namespace braid::multipath::staging
