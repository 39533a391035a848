// Lends staging rings to copies: one ring to one copy, for as long as the call lasts.
//
// Fairness. A copy never waits for another copy's ring. So copies cannot deadlock, and a copy whose
// stream is blocked blocks no other copy. A copy gets, in this order: the ring that its stream used
// last (a pageable copy may wait for its own stream); a ring whose transfers have all passed; a new
// ring. If its context has kRingsPerContext rings and none of these is free, it gets none and is
// native.
//
// Threads: any. Errors: a ring that cannot be opened is not lent and not tried again.
#pragma once

#include <memory>
#include <mutex>
#include <vector>

#include "cuda/driver.h"
#include "multipath/context_registry.h"
#include "multipath/staging/ring.h"
#include "multipath/stream_key.h"

namespace braid::multipath::staging {

/// 32 MB each, opened on demand: most programs copy pageable memory from one thread.
inline constexpr int kRingsPerContext = 4;

class RingPool {
  struct Entry;

 public:
  /// A ring for one copy; goes back to the pool at the end of its scope.
  class Loan {
   public:
    Loan() = default;
    Loan(RingPool& pool, std::shared_ptr<Entry> entry) : pool_(&pool), entry_(std::move(entry)) {}
    ~Loan();
    Loan(Loan&&) = default;
    Loan& operator=(Loan&&) = delete;

    explicit operator bool() const { return entry_ != nullptr; }
    Ring& operator*() const;

   private:
    RingPool* pool_ = nullptr;
    std::shared_ptr<Entry> entry_;
  };

  explicit RingPool(const cuda::Driver& driver) : driver_(driver) {}

  /// A ring for a copy on `stream` of `context`. The first loan of a ring pins memory.
  Loan borrow(CUcontext context, const StreamKey& stream);

  /// The context is about to end: waits a limited time for the transfers of its rings. Then frees
  /// the rings if the context lives until another owner has released it. Otherwise they end with
  /// it: to free them might wait for the program. Abandons a ring on loan.
  void forget_context(CUcontext context, ContextRegistry::End how);

  /// Frees the rings of every context, likewise.
  void close();

 private:
  struct Entry {
    Entry(const cuda::Driver& driver, CUcontext context) : ring(driver, context) {}
    Ring ring;
    StreamKey stream;  // of the latest copy
    bool is_lent = true;
  };
  using Entries = std::vector<std::shared_ptr<Entry>>;

  std::shared_ptr<Entry> choose(CUcontext context, const StreamKey& stream, bool& is_new);
  void retire(const Entries& entries);

  const cuda::Driver& driver_;
  std::mutex mutex_;  // guards the list and the loans; nothing blocks under it
  Entries entries_;
};

}  // namespace braid::multipath::staging
