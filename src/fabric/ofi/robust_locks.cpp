#include "fabric/ofi/robust_locks.h"

#include <sched.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <utility>

#include "base/clock.h"
#include "base/try.h"
#include "fabric/ofi/doorbell.h"
#include "fabric/ofi/imports.h"
#include "host/process_file.h"

namespace braid::fabric::ofi {
namespace {

/// Most holders are done sooner. A holder that copies, or is not scheduled, may take longer: then
/// the call is simply made again.
constexpr uint64_t kLimitNs = 1'000'000;
constexpr int kTriesBeforeYield = 128;

thread_local RobustCalls* current = nullptr;

std::atomic_ref<int32_t> word_of(pthread_spinlock_t* lock) {
  static_assert(sizeof *lock == sizeof(int32_t));
  return std::atomic_ref<int32_t>(const_cast<int32_t&>(*lock));
}

/// libfabric's mark that an endpoint has something to do; it follows the lock.
void signal_endpoint(pthread_spinlock_t* lock) {
  std::atomic_ref<int32_t>(const_cast<int32_t*>(lock)[1]).store(1);
}

/// The value of a free lock in libc: 1 on x86, 0 elsewhere.
int32_t free_word() {
  pthread_spinlock_t lock;
  pthread_spin_init(&lock, PTHREAD_PROCESS_SHARED);
  return word_of(&lock).load();
}
const int32_t kFree = free_word();

/// libc takes a lock for held if its value is not positive (x86) or not 0 (elsewhere). The bit
/// kNamed tells our values from the counts that libc's functions keep there. The process number has
/// 22 bits (PID_MAX_LIMIT).
constexpr int32_t kNamed = 1 << 30;
constexpr int kProcessBits = 22;
constexpr int32_t kProcessMask = (1 << kProcessBits) - 1;
int32_t held_word(int32_t name) { return kFree == 1 ? -name : name; }

/// A number of our PID namespace, since process numbers hold only within one. 0: not known.
int32_t pid_namespace() {
  struct stat about {};
  if (stat("/proc/self/ns/pid", &about) != 0) return 0;
  return static_cast<int32_t>(about.st_ino % 255) + 1;
}

int32_t own_word() {
  return held_word(kNamed | pid_namespace() << kProcessBits | static_cast<int32_t>(getpid()));
}

bool has_ended(pid_t process) {
  const File file = process_file(process);
  return file.is_open() ? braid::has_ended(file) : errno == ESRCH;
}

void pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

/// Reads first: a write would take the cache line from the lock's holder.
bool try_lock(pthread_spinlock_t* lock, int32_t word) {
  int32_t seen = word_of(lock).load(std::memory_order_relaxed);
  return seen == kFree && word_of(lock).compare_exchange_strong(
                              seen, word, std::memory_order_acquire, std::memory_order_relaxed);
}

void set_free(pthread_spinlock_t* lock) { word_of(lock).store(kFree, std::memory_order_release); }

using SpinCall = int(pthread_spinlock_t*);
using MutexCall = int(pthread_mutex_t*);
constinit Before<SpinCall> spin_lock_before, spin_trylock_before, spin_unlock_before;
constinit Before<MutexCall> mutex_lock_before, mutex_unlock_before;

/// Whether a call is none of this library's, and another library is to look at it. What would be
/// libc's is done here: its functions keep counts in the word.
bool is_of_other_library(const Before<SpinCall>& before, SpinCall* of_libc) {
  return current == nullptr && !before.is(of_libc);
}

// ---- What libfabric calls ----

int spin_lock(pthread_spinlock_t* lock) {
  if (is_of_other_library(spin_lock_before, pthread_spin_lock)) return spin_lock_before(lock);
  RobustCalls* const calls = current;
  const int32_t word = calls != nullptr ? calls->word() : held_word(0);
  if (calls != nullptr && calls->holds(lock)) return 0;
  if (try_lock(lock, word)) {
    if (calls != nullptr) calls->taken(lock);
  } else if (calls != nullptr) {
    calls->wait(lock);
  } else {
    while (!try_lock(lock, word)) pause();
  }
  return 0;
}

int spin_trylock(pthread_spinlock_t* lock) {
  if (is_of_other_library(spin_trylock_before, pthread_spin_trylock))
    return spin_trylock_before(lock);
  const int32_t word = current != nullptr ? current->word() : held_word(0);
  return try_lock(lock, word) ? 0 : EBUSY;
}

int spin_unlock(pthread_spinlock_t* lock) {
  if (is_of_other_library(spin_unlock_before, pthread_spin_unlock)) return spin_unlock_before(lock);
  if (current == nullptr || !current->holds(lock)) set_free(lock);
  return 0;
}

int mutex_lock(pthread_mutex_t* mutex) {
  const int answer = mutex_lock_before(mutex);
  if (answer == 0 && current != nullptr) current->mutex_locked(mutex);
  return answer;
}

int mutex_unlock(pthread_mutex_t* mutex) {
  if (current != nullptr) current->mutex_unlocked(mutex);
  return mutex_unlock_before(mutex);
}

}  // namespace

Status make_locks_robust(void* libfabric) {
  BRAID_TRY(spin_trylock_before.replace(libfabric, "pthread_spin_trylock", spin_trylock));
  BRAID_TRY(spin_unlock_before.replace(libfabric, "pthread_spin_unlock", spin_unlock));
  BRAID_TRY(mutex_lock_before.replace(libfabric, "pthread_mutex_lock", mutex_lock));
  BRAID_TRY(mutex_unlock_before.replace(libfabric, "pthread_mutex_unlock", mutex_unlock));
  return spin_lock_before.replace(libfabric, "pthread_spin_lock", spin_lock);
}

RobustCalls::RobustCalls() : word_(own_word()) {}

void RobustCalls::forget_endpoints() {
  for (pthread_spinlock_t* lock : own_held_) signal_endpoint(lock);
  own_held_.clear();
  held_.clear();
}

void RobustCalls::signal_free() {
  std::erase_if(own_held_, [](pthread_spinlock_t* lock) {
    if (word_of(lock).load() != kFree) return false;
    signal_endpoint(lock);
    return true;
  });
}

void RobustCalls::begin(Purpose purpose) {
  purpose_ = purpose;
  mutex_count_ = 0;
  current = this;
}

void RobustCalls::end() { current = nullptr; }

void RobustCalls::hold(pthread_spinlock_t& lock) {
  spin_lock(&lock);
  before_call_ = &lock;
}

void RobustCalls::release() {
  if (before_call_ != nullptr) set_free(std::exchange(before_call_, nullptr));
}

void RobustCalls::wait(pthread_spinlock_t* lock) {
  const auto known = held_.find(lock);
  const bool is_known = known != held_.end() && known->second == word_of(lock).load();
  uint64_t end_ns = 0;  // not known yet: most waits are over before a clock could be read
  for (;;) {
    for (int tries = 0; tries < kTriesBeforeYield; ++tries) {
      if (try_lock(lock, word_)) return taken(lock);
      pause();
    }
    const uint64_t now = monotonic_ns();
    if (end_ns == 0) end_ns = is_known ? now : now + kLimitNs;
    if (now >= end_ns) {
      int32_t holder = word_of(lock).load();
      if (holder != kFree) {
        if (!may_take_over(holder)) abandon(lock, holder);
        if (word_of(lock).compare_exchange_strong(holder, word_)) return taken(lock);
      }
    }
    if (!is_known) sched_yield();
  }
}

/// Whether the holder has ended, and has left the queue consistent. Another PID namespace may look
/// like our own in the word: but a live process there has a doorbell.
bool RobustCalls::may_take_over(int32_t holder) const {
  const bool carries_messages = purpose_ == Purpose::kMessage || purpose_ == Purpose::kProgress;
  const int32_t name = held_word(holder);
  const bool is_named = name > 0 && (name & kNamed) != 0;
  const int32_t space = (name & ~kNamed) >> kProcessBits;
  return takes_over_ && carries_messages && is_named && space != 0 && space == pid_namespace() &&
         has_ended(name & kProcessMask) && !has_live_doorbell(name & kProcessMask);
}

void RobustCalls::abandon(pthread_spinlock_t* lock, int32_t holder) {
  held_[lock] = holder;
  if (purpose_ == Purpose::kProgress || purpose_ == Purpose::kDoorProgress) own_held_.insert(lock);
  release();
  while (mutex_count_ > 0) pthread_mutex_unlock(mutexes_[--mutex_count_]);
  current = nullptr;
  __builtin_longjmp(return_, 1);
}

void RobustCalls::mutex_locked(pthread_mutex_t* mutex) {
  if (mutex_count_ < mutexes_.size()) mutexes_[mutex_count_++] = mutex;
}

void RobustCalls::mutex_unlocked(pthread_mutex_t* mutex) {
  const auto end = mutexes_.begin() + static_cast<ptrdiff_t>(mutex_count_);
  const auto gone = std::remove(mutexes_.begin(), end, mutex);
  mutex_count_ = static_cast<size_t>(gone - mutexes_.begin());
}

}  // namespace braid::fabric::ofi
