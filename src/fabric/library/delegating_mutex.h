// A mutex whose holder also does what other threads hand in (flat combining: Hendler, Incze, Shavit
// and Tzafrir, SPAA 2010). The thread that makes progress holds it nearly all the time. A caller
// that slept for it would get it late, and nothing would move until that caller is awake.
#pragma once

#include <atomic>
#include <exception>
#include <mutex>
#include <optional>
#include <thread>
#include <type_traits>
#include <utility>

#include "fabric/library/parked.h"

namespace braid::fabric {

class DelegatingMutex {
 public:
  /// Work that is handed in.
  struct Errand {
    void (*call)(const void* work);
    const void* work;
    Parked* done;  ///< released when the work is done; null: the work tells by itself
    std::exception_ptr thrown =
        nullptr;  ///< if `done` is not null; otherwise the work throws nothing
    Errand* next = nullptr;
  };
  template <typename Work>
  static Errand errand_of(const Work& work, Parked* done) {
    return {[](const void* any) { (*static_cast<const Work*>(any))(); }, &work, done};
  }

  /// For threads that hold it long, and call `serve` now and then.
  void lock() { mutex_.lock(); }
  bool try_lock() { return mutex_.try_lock(); }
  void unlock();
  /// By the holder: does what was handed in.
  void serve();

  /// Returns `work()`, which is called under the mutex: here if it is free, otherwise in the thread
  /// that holds it. Blocks until that has happened. What `work` throws is thrown here.
  template <typename Work>
  auto run(const Work& work) {
    return returned(work, [this](const auto& call) { do_somewhere(call); });
  }
  /// The same, always called here. The holder waits meanwhile.
  template <typename Work>
  auto run_here(const Work& work) {
    return returned(work, [this](const auto& call) { do_here(call); });
  }

  /// Does not wait until the work, which must live until then, has been called. What is handed in,
  /// or run, later is called later.
  void hand_in(Errand& errand);

 private:
  template <typename Work, typename Do>
  static auto returned(const Work& work, const Do& run);
  template <typename Work>
  void do_somewhere(const Work& work);
  template <typename Work>
  void do_here(const Work& work);
  bool has_errands();

  std::mutex mutex_;
  std::atomic<Errand*> errands_{nullptr};  // the last one first
};

template <typename Work, typename Do>
auto DelegatingMutex::returned(const Work& work, const Do& run) {
  using Answer = decltype(work());
  if constexpr (std::is_void_v<Answer>) {
    run(work);
  } else {
    std::optional<Answer> answer;
    run([&] { answer.emplace(work()); });
    return Answer(std::move(*answer));
  }
}

template <typename Work>
void DelegatingMutex::do_somewhere(const Work& work) {
  if (try_lock()) {
    const std::unique_lock lock(*this, std::adopt_lock);
    serve();
    return work();
  }
  Parked done;
  Errand errand = errand_of(work, &done);
  hand_in(errand);
  done.await();
  if (errand.thrown != nullptr) std::rethrow_exception(errand.thrown);
}

template <typename Work>
void DelegatingMutex::do_here(const Work& work) {
  if (try_lock()) {
    const std::unique_lock lock(*this, std::adopt_lock);
    serve();
    return work();
  }
  const std::thread::id here = std::this_thread::get_id();
  bool has_run = false;  // of this thread alone
  Parked is_held, is_over, done;
  const auto hold = [&] {
    if (std::this_thread::get_id() == here) {
      has_run = true;
      return work();
    }
    is_held.release();
    is_over.await();
  };
  Errand errand = errand_of(hold, &done);
  hand_in(errand);
  if (!has_run) {
    is_held.await();
    try {
      work();
    } catch (...) {
      errand.thrown = std::current_exception();
    }
    is_over.release();
  }
  done.await();
  if (errand.thrown != nullptr) std::rethrow_exception(errand.thrown);
}

}  // namespace braid::fabric
