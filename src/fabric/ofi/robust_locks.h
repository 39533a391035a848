// Makes the locks of libfabric's shm provider robust. Each shm endpoint has a spin lock in memory
// that processes share: writers take it to post, and the owner takes it to make progress. If a
// process is stopped or killed while it holds one, the next process that takes it would spin for
// ever.
//
// libfabric takes its locks by the functions here. Within RobustCalls::run they wait for a limited
// time:
// - The lock word names the process that holds the lock. If that process has ended (pidfd), the
//   lock is taken over, as a robust mutex is (pthread_mutexattr_setrobust, "EOWNERDEAD").
// - Otherwise the call is abandoned: the mutexes that it had taken are released, and it returns
//   (longjmp). Calls that post or make progress take this lock before they change anything. So the
//   caller only has to post again later. Endpoints that have missed their progress are signalled
//   once their lock is free.
// fi_recv takes the lock of its own endpoint late: it has taken a message that came before the
// buffer out of libfabric's list by then, and the message would be lost. So it is called while the
// lock is held already, which is abandoned instead.
// Outside of it the functions wait as libc's do. They keep libc's values of the lock word.
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

/// Makes libfabric, a handle of dlopen, use these functions. Once, before its first endpoint.
Status make_locks_robust(void* libfabric);

/// The calls of one domain. Like the domain, it is used by one thread at a time.
class RobustCalls {
 public:
  /// Says what a call may do with a lock whose holder has ended. Messages leave the queue behind
  /// the lock consistent, whenever their writer ends; a write may leave half an entry.
  enum class Purpose : uint8_t {
    kMessage,       ///< takes the lock over after `carry_messages_only`; else abandoned
    kProgress,      ///< the same
    kWrite,         ///< is abandoned
    kDoorProgress,  ///< the same
  };

  RobustCalls();
  /// From now on peers post only messages to the endpoint that messages come to.
  void carry_messages_only() { takes_over_ = true; }

  /// Runs `call`, which calls libfabric. None: it was abandoned.
  template <typename Call>
  std::optional<int64_t> run(Purpose purpose, const Call& call) {
    if (__builtin_setjmp(return_) != 0) return std::nullopt;
    begin(purpose);
    const int64_t answer = call();
    end();
    return answer;
  }

  /// The same with a lock of an endpoint of our own, which is taken before the call: libfabric
  /// takes and releases it in vain. So a call that takes no other shared lock, as fi_recv, is not
  /// abandoned once it has begun.
  template <typename Call>
  std::optional<int64_t> run_holding(pthread_spinlock_t& lock, const Call& call) {
    if (__builtin_setjmp(return_) != 0) return std::nullopt;
    begin(Purpose::kProgress);
    hold(lock);
    const int64_t answer = call();
    release();
    end();
    return answer;
  }

  /// Called before each progress. Signals our own endpoints whose lock was held, and is free again.
  void resume() {
    if (!own_held_.empty()) signal_free();
  }
  /// Progress of an endpoint of our own was abandoned, and has not been made since.
  bool is_held_up() const { return !own_held_.empty(); }
  /// Called before an endpoint is closed.
  void forget_endpoints();

  // For the functions that libfabric calls.

  int32_t word() const { return word_; }  ///< the word of a lock that this process takes
  void taken(const pthread_spinlock_t* lock) {
    if (!held_.empty()) held_.erase(lock);
  }
  /// Whether `run_holding` holds it.
  bool holds(const pthread_spinlock_t* lock) const { return lock == before_call_; }
  /// Returns once it is taken, or does not return.
  void wait(pthread_spinlock_t* lock);
  void mutex_locked(pthread_mutex_t* mutex);
  void mutex_unlocked(pthread_mutex_t* mutex);

 private:
  void begin(Purpose purpose);
  static void end();
  void hold(pthread_spinlock_t& lock);
  void release();
  void signal_free();
  bool may_take_over(int32_t holder) const;
  [[noreturn]] void abandon(pthread_spinlock_t* lock, int32_t holder);

  void* return_[5] = {};  // for the compiler's setjmp, which saves less than libc's
  Purpose purpose_ = Purpose::kMessage;
  const int32_t word_;
  bool takes_over_ = false;
  std::array<pthread_mutex_t*, 8> mutexes_{};
  size_t mutex_count_ = 0;
  pthread_spinlock_t* before_call_ = nullptr;                    // taken before the call that runs
  std::unordered_map<const pthread_spinlock_t*, int32_t> held_;  // held too long, and their holders
  std::unordered_set<pthread_spinlock_t*> own_held_;             // those of endpoints of our own
};

}  // namespace braid::fabric::ofi
