// The driver's lock of a context. Some calls wait for the context's streams and hold its lock
// meanwhile; others need the lock for a moment, and wait until it is free. So a thread that frees
// memory stops every thread that launches. If the streams wait for an action of a stopped thread,
// all of them hang: here as on hardware.
//
// Measured on 2xH200, driver 580.159: cuStreamWaitValue32 held a stream, one thread was in each of
// the calls, and others were tried at the same time. A call that waits for a lock holds no lock of
// its own. Calls that are not in the table need no lock.
//
// A copy that makes its caller wait for the legacy stream needs the lock, and holds it while it
// waits (api/copy_issue.cpp). Its memory and its stream decide this, not its symbol.
//
// Not measured, but assumed to need the lock, since they allocate or enqueue: making streams and
// events, host functions, graph launches, prefetching, allocation from pools.
#pragma once

#include <string_view>

namespace braid::emulator {

enum class LockUse {
  kNever,
  /// The lock of its stream's context, or of the current one without a stream; and of each context
  /// whose plain memory (cuMemAlloc) it names.
  kNeeds,
  /// The lock of an event's context, if that is not the stream's.
  kNeedsOfOthers,
  /// Holds the lock of the memory's context, or of the current one, until the work now in its
  /// streams has ended.
  kHolds,
};

/// The use of the lock by an entry point, by the beginning of its symbol: all versions and
/// per-thread forms are alike.
constexpr LockUse lock_use(std::string_view symbol) {
  struct Row {
    std::string_view beginning;
    LockUse use;
  };
  constexpr Row kRows[] = {
      {"cuMemFreeAsync", LockUse::kNeeds},  // before cuMemFree, its prefix
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
