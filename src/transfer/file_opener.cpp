#include "transfer/file_opener.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <map>
#include <mutex>
#include <system_error>

#include "fabric/thread.h"
#include "transfer/directory/socket.h"

namespace braid::transfer {

struct FileOpener::State {
  Descriptor told{eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)};
  std::mutex mutex;  // of what follows
  std::condition_variable changed;
  std::deque<Work> waiting, ended;
  std::map<uint64_t, size_t> of_folder;  // threads at work
  std::map<Incarnation, size_t> of_peer;
  size_t idle = 0;
  bool is_ending = false;

  template <typename Key>
  static size_t count(const std::map<Key, size_t>& counts, const Key& key) {
    const auto found = counts.find(key);
    return found == counts.end() ? 0 : found->second;
  }
  template <typename Key>
  static void leave(std::map<Key, size_t>& counts, const Key& key) {
    const auto found = counts.find(key);
    if (--found->second == 0) counts.erase(found);
  }
  bool may_begin(const Work& work) const {
    const bool may_for_peer = work.is_closing || count(of_peer, work.peer) < kOfPeerMax;
    return may_for_peer && count(of_folder, work.folder) < kOfFolderMax;
  }
  std::deque<Work>::iterator next() {
    return std::find_if(waiting.begin(), waiting.end(),
                        [this](const Work& work) { return may_begin(work); });
  }
  void begin(const Work& work) {
    ++of_folder[work.folder];
    if (!work.is_closing) ++of_peer[work.peer];
  }
  void end(const Work& work) {
    leave(of_folder, work.folder);
    if (!work.is_closing) leave(of_peer, work.peer);
  }
  void tell() const {
    const uint64_t one = 1;
    (void)!write(told.get(), &one, sizeof one);
  }

  void work() {
    std::unique_lock lock(mutex);
    for (;;) {
      ++idle;
      changed.wait(lock, [this] { return is_ending || next() != waiting.end(); });
      --idle;
      const auto found = next();
      if (found == waiting.end()) return;
      Work work = std::move(*found);
      waiting.erase(found);
      begin(work);
      lock.unlock();
      work.run();
      if (work.is_closing) work.run = nullptr;
      lock.lock();
      end(work);
      changed.notify_all();  // what waited for its folder or its peer may begin
      if (is_ending) {
        lock.unlock();
        { const Work dropped = std::move(work); }  // closes what was opened, in this thread
        lock.lock();
      } else {
        ended.push_back(std::move(work));
        tell();
      }
    }
  }
};

FileOpener::FileOpener() : state_(std::make_shared<State>()) {}

FileOpener::~FileOpener() {
  std::unique_lock lock(state_->mutex);
  state_->is_ending = true;
  std::erase_if(state_->waiting, [](const Work& work) { return !work.is_closing; });
  state_->changed.notify_all();
  const auto is_over = [](const Thread& each) { return *each.is_over; };
  state_->changed.wait_for(lock, std::chrono::milliseconds(kLeaveMs),
                           [&] { return std::all_of(threads_.begin(), threads_.end(), is_over); });
  for (Thread& each : threads_)
    if (!is_over(each)) each.thread.detach();
  lock.unlock();
  for (Thread& each : threads_)
    if (each.thread.joinable()) each.thread.join();
}

void FileOpener::start(Work work) {
  bool needs_thread = false;
  {
    const std::lock_guard lock(state_->mutex);
    needs_thread = state_->may_begin(work) && state_->waiting.size() >= state_->idle;
    state_->waiting.push_back(std::move(work));
  }
  ++under_way_;
  state_->changed.notify_one();
  if (!needs_thread || threads_.size() >= kThreadsMax || add_thread() || !threads_.empty()) return;
  const std::lock_guard lock(state_->mutex);  // no thread will do it
  for (Work& each : state_->waiting) {
    each.run = nullptr;
    state_->ended.push_back(std::move(each));
  }
  state_->waiting.clear();
  state_->tell();
}

/// False: the system allows no further thread now (`ulimit -u`, pids.max).
bool FileOpener::add_thread() {
  const auto is_over = std::make_shared<bool>(false);
  try {
    threads_.push_back({fabric::start_thread([state = state_, is_over] {
                          state->work();
                          const std::lock_guard lock(state->mutex);
                          *is_over = true;
                          state->changed.notify_all();
                        }),
                        is_over});
  } catch (const std::system_error&) {
    return false;
  }
  return true;
}

bool FileOpener::step() {
  if (under_way_ == 0) return false;
  std::deque<Work> ended;
  {
    const std::lock_guard lock(state_->mutex);
    ended.swap(state_->ended);
  }
  under_way_ -= ended.size();
  for (const Work& work : ended)
    if (work.ended) work.ended(work.is_closing || work.run != nullptr);
  return !ended.empty();
}

int FileOpener::descriptor() const { return state_->told.get(); }

bool FileOpener::arm() {
  uint64_t count = 0;
  (void)!read(descriptor(), &count, sizeof count);
  const std::lock_guard lock(state_->mutex);
  return state_->ended.empty();
}

}  // namespace braid::transfer
