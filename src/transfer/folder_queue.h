// Work on files that waits to begin, with a limit of how much of one folder is under way at a time:
// a folder whose file system does not answer leaves room for the others. Folders take turns; what
// is of one folder keeps its order. Not synchronised.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <utility>
#include <vector>

namespace braid::transfer {

template <typename Work>
class FolderQueue {
 public:
  explicit FolderQueue(size_t of_folder_max) : of_folder_max_(of_folder_max) {}

  void push(uint64_t folder, Work work) {
    folders_[folder].waiting.push_back(std::move(work));
    put_in_turn(folder);
  }
  /// Whether something may begin now.
  bool has_next() const { return !turns_.empty(); }
  /// Takes what begins now: it is under way until `end`. There must be something.
  Work pop() {
    const uint64_t number = turns_.front();
    turns_.pop_front();
    Folder& folder = folders_.at(number);
    Work work = std::move(folder.waiting.front());
    folder.waiting.pop_front();
    folder.is_in_turn = false;
    ++folder.under_way;
    put_in_turn(number);
    return work;
  }
  void end(uint64_t number) {
    const auto folder = folders_.find(number);
    --folder->second.under_way;
    if (folder->second.under_way == 0 && folder->second.waiting.empty())
      folders_.erase(folder);
    else
      put_in_turn(number);
  }
  /// Takes one of which `is_it`, if it has not begun.
  template <typename Is>
  std::optional<Work> take_waiting(const Is& is_it) {
    for (auto& [number, folder] : folders_) {
      const auto found = std::find_if(folder.waiting.begin(), folder.waiting.end(), is_it);
      if (found == folder.waiting.end()) continue;
      std::optional<Work> work(std::move(*found));
      folder.waiting.erase(found);
      if (!folder.waiting.empty()) return work;
      if (folder.is_in_turn) std::erase(turns_, number);
      folder.is_in_turn = false;
      if (folder.under_way == 0) folders_.erase(number);
      return work;
    }
    return std::nullopt;
  }
  /// Takes all that has not begun.
  std::vector<Work> take_waiting() {
    std::vector<Work> all;
    for (auto& [number, folder] : folders_)
      for (; !folder.waiting.empty(); folder.waiting.pop_front())
        all.push_back(std::move(folder.waiting.front()));
    std::erase_if(folders_, [](const auto& each) { return each.second.under_way == 0; });
    for (const uint64_t number : std::exchange(turns_, {}))
      if (const auto folder = folders_.find(number); folder != folders_.end())
        folder->second.is_in_turn = false;
    return all;
  }

 private:
  struct Folder {
    std::deque<Work> waiting;
    size_t under_way = 0;
    bool is_in_turn = false;
  };
  void put_in_turn(uint64_t number) {
    Folder& folder = folders_.at(number);
    const bool may_begin = !folder.waiting.empty() && folder.under_way < of_folder_max_;
    if (may_begin && !std::exchange(folder.is_in_turn, true)) turns_.push_back(number);
  }

  size_t of_folder_max_;
  std::map<uint64_t, Folder> folders_;  // that have work
  std::deque<uint64_t> turns_;          // those of which something may begin
};

}  // namespace braid::transfer
