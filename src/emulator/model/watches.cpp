#include "emulator/model/watches.h"

#include <algorithm>
#include <utility>
#include <vector>

namespace braid::emulator {
namespace {

constexpr uint64_t kWidest = 8;  // words of 4 or 8 bytes

uint64_t first_that_may_reach(uint64_t address) {
  return address >= kWidest ? address - kWidest + 1 : 0;
}

}  // namespace

void Watches::add(uint64_t group, uint64_t address, uint64_t size_bytes, bool host_memory,
                  std::function<bool()> look) {
  watches_.emplace(address, Watch{group, size_bytes, host_memory, std::move(look)});
  if (host_memory) ++on_host_;
}

void Watches::drop(uint64_t group) {
  std::erase_if(watches_, [&](const auto& entry) {
    if (entry.second.group != group) return false;
    if (entry.second.host_memory) --on_host_;
    return true;
  });
}

bool Watches::any_in(uint64_t address, uint64_t size_bytes) const {
  for (auto at = watches_.lower_bound(first_that_may_reach(address));
       at != watches_.end() && (at->first < address || at->first - address < size_bytes); ++at)
    if (at->first + at->second.size_bytes > address) return true;
  return false;
}

// `look` may itself change memory and so watches: everything is copied before anybody is asked.
void Watches::changed(uint64_t address, uint64_t size_bytes) {
  if (watches_.empty()) return;
  std::vector<std::pair<uint64_t, std::function<bool()>>> asked;
  for (auto at = watches_.lower_bound(first_that_may_reach(address));
       at != watches_.end() && (at->first < address || at->first - address < size_bytes); ++at)
    if (at->first + at->second.size_bytes > address)
      asked.emplace_back(at->second.group, at->second.look);
  for (const auto& [group, look] : asked) ask(group, look);
}

void Watches::look_at_host_memory() {
  if (on_host_ == 0) return;
  std::vector<std::pair<uint64_t, std::function<bool()>>> asked;
  for (const auto& [address, watch] : watches_)
    if (watch.host_memory) asked.emplace_back(watch.group, watch.look);
  for (const auto& [group, look] : asked) ask(group, look);
}

void Watches::ask(uint64_t group, const std::function<bool()>& look) {
  const bool still_there = std::any_of(watches_.begin(), watches_.end(), [&](const auto& entry) {
    return entry.second.group == group;
  });
  if (still_there && look()) drop(group);
}

}  // namespace braid::emulator
