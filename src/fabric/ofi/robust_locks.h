// Locks of libfabric's shm, made robust. Each of its endpoints has a spin lock in memory that
// processes share: writers take it to post, and its owner to make progress. A process that is
// stopped or killed while it holds one would make whoever takes it next spin for ever.
//
// libfabric takes its locks by the functions here. Within a RobustCalls they have a limit:
// - The lock word names the process that holds it, so one that has ended is noticed (pidfd), and
//   the lock is taken over, as a robust mutex is (pthread_mutexattr_setrobust, "EOWNERDEAD").
// - Otherwise the call is abandoned: the mutexes that it had taken are released, and it returns
//   (longjmp). At that point libfabric has changed nothing yet: each of its calls takes this lock
//   first. Posting again later is all that is needed, and endpoints that have missed their
//   progress are signalled once their lock is free.
// Elsewhere they wait as libc's do, whose values of the lock word they keep.
//
// Source: prov/shm/src and include/ofi_shm.h (struct smr_region) of libfabric 1.17.
#pragma once

#include <pthread.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <unordered_map>
#include <unordered_set>

#include "base/status.h"

namespace braid::fabric::ofi {

/// Makes libfabric, a handle of dlopen, use them. Once, before its first endpoint.
Status make_locks_robust(void* libfabric);

/// Of one domain, and used as it is: by one thread at a time.
class RobustCalls {
 public:
  /// What a call may do with a lock whose holder has ended. Only messages leave the queue behind it
  /// in order, whenever their writer ends; a write may leave half of one.
  enum class Purpose : uint8_t {
    kMessage,       ///< takes it over, if `carry_messages_only`; otherwise it is abandoned
    kProgress,      ///< the same
    kWrite,         ///< is abandoned
    kDoorProgress,  ///< the same
  };

  RobustCalls();
  /// From now on peers write elsewhere than where messages come to.
  void carry_messages_only() { takes_over_ = true; }

  /// Calls `call`, which calls libfabric. None: it was abandoned.
  template <typename Call>
  std::optional<int64_t> run(Purpose purpose, const Call& call) {
    if (__builtin_setjmp(return_) != 0) return std::nullopt;
    begin(purpose);
    const int64_t answer = call();
    end();
    return answer;
  }

  /// Before each progress: signals endpoints of our own whose lock was held, and is free again.
  void resume() {
    if (!own_held_.empty()) signal_free();
  }
  /// Before an endpoint is closed.
  void forget_endpoints();

  // For the functions that libfabric calls.

  int32_t word() const { return word_; }  ///< into a lock that is taken
  void taken(const pthread_spinlock_t* lock) {
    if (!held_.empty()) held_.erase(lock);
  }
  /// Returns once it is taken, or does not return.
  void wait(pthread_spinlock_t* lock);
  void mutex_locked(pthread_mutex_t* mutex);
  void mutex_unlocked(pthread_mutex_t* mutex);

 private:
  void begin(Purpose purpose);
  static void end();
  void signal_free();
  bool may_take_over(int32_t holder) const;
  [[noreturn]] void abandon(pthread_spinlock_t* lock, int32_t holder);

  void* return_[5] = {};  // of the compiler's setjmp, which saves less than libc's
  Purpose purpose_ = Purpose::kMessage;
  const int32_t word_;
  bool takes_over_ = false;
  std::array<pthread_mutex_t*, 8> mutexes_{};
  size_t mutex_count_ = 0;
  std::unordered_map<const pthread_spinlock_t*, int32_t> held_;  // too long, and by whom
  std::unordered_set<pthread_spinlock_t*> own_held_;             // those of endpoints of our own
};

}  // namespace braid::fabric::ofi
