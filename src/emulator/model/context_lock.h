// The driver's lock of a context. Some calls wait for the context's streams and hold its lock
// meanwhile; others need the lock for a moment, and wait until nobody holds it. So a thread that
// frees memory stops every thread that launches, and if the streams wait for something that only a
// stopped thread would do, all of them hang: here as on hardware.
//
// Measured on 2xH200, driver 580.159: a stream held by cuStreamWaitValue32, one thread in each of
// the calls, others tried beside it. What a call waits for while it needs a lock, it waits for
// without a lock of its own. Calls that are not in the table need no lock.
//
// A copy that makes its caller wait for the legacy stream needs the lock, and holds it while it
// waits (api/copy_issue.cpp): what its memory and its stream are decides, not its symbol.
//
// What was not measured and is taken to need the lock, since it allocates or enqueues: making
// streams and events, host functions, graph launches, prefetching, allocation from pools.
#pragma once

#include <string_view>

namespace braid::emulator {

enum class LockUse {
  kNever,
  /// Of the context of its stream, or the current one where it has none; and of each context whose
  /// plain memory (cuMemAlloc) it names.
  kNeeds,
  /// Of the context of an event that is not of the stream's own context.
  kNeedsOfOthers,
  /// Of the memory's context, or the current one: until all that was in its streams has ended.
  kHolds,
};

/// What the entry point does, by the beginning of its symbol: versions and the forms of the
/// per-thread stream are alike.
constexpr LockUse lock_use(std::string_view symbol) {
  struct Row {
    std::string_view beginning;
    LockUse use;
  };
  constexpr Row kRows[] = {
      {"cuMemFreeAsync", LockUse::kNeeds},  // before what it begins with
      {"cuMemFree", LockUse::kHolds},       // and cuMemFreeHost
      {"cuMemHostUnregister", LockUse::kHolds},
      {"cuModuleLoad", LockUse::kHolds},
      {"cuStreamWaitEvent", LockUse::kNeedsOfOthers},
      {"cuLaunch", LockUse::kNeeds},
      {"cuGraphLaunch", LockUse::kNeeds},
      {"cuStreamAddCallback", LockUse::kNeeds},
      {"cuEventRecord", LockUse::kNeeds},
      {"cuMemcpy", LockUse::kNeeds},
      {"cuMemset", LockUse::kNeeds},
      {"cuMemPrefetch", LockUse::kNeeds},
      {"cuMemAlloc", LockUse::kNeeds},
      {"cuMemHostAlloc", LockUse::kNeeds},
      {"cuMemHostRegister", LockUse::kNeeds},
      {"cuStreamCreate", LockUse::kNeeds},
      {"cuEventCreate", LockUse::kNeeds},
  };
  for (const Row& row : kRows)
    if (symbol.starts_with(row.beginning)) return row.use;
  return LockUse::kNever;
}

/// While it lives, the lock is held. The world's lock covers it.
class HeldLock {
 public:
  explicit HeldLock(bool& held) : held_(held) { held_ = true; }
  ~HeldLock() { held_ = false; }
  HeldLock(const HeldLock&) = delete;
  HeldLock& operator=(const HeldLock&) = delete;

 private:
  bool& held_;
};

}  // namespace braid::emulator
