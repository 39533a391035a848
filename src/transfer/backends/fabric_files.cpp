// FabricBackend: asks peers for files.
#include <utility>

#include "transfer/backends/fabric.h"

namespace braid::transfer {

void FabricBackend::ask_for_file(const Incarnation& who, FileOpen request) {
  const uint64_t token = request.token;
  files_asked_[token] = {who, std::move(request), {}, 0, 0, {}};
  const auto peer = peers_.find(who);
  if (peer == peers_.end() || peer->second.is_lost) return end_files_asked(who, Cause::kPeerLost);
  ask_for_files();
}

/// Asks repeatedly: a file that is opened twice does no harm.
void FabricBackend::ask_for_files() {
  for (auto& [token, asked] : files_asked_) {
    const bool is_asked = asked.over && now_ns_ < asked.asked_ns + kAskAgainNs;
    if (is_asked || asked.answer) continue;
    const std::vector<LinkOfRail>& up = peers_[asked.who].up;
    if (up.empty()) continue;
    asked.over = up[asked.turn++ % up.size()];
    asked.asked_ns = now_ns_;
    rails_[asked.over->rail]->send(asked.over->link, asked.request);
  }
}

/// Takes the first answer of the peer that was asked. Answers of other peers are ignored.
void FabricBackend::file_opened(const Incarnation& who, const FileOpened& answer) {
  const auto asked = files_asked_.find(answer.token);
  if (asked != files_asked_.end() && asked->second.who == who && !asked->second.answer)
    asked->second.answer = answer;
}

void FabricBackend::end_files_asked(const Incarnation& who, Cause cause) {
  for (auto& [token, asked] : files_asked_)
    if (asked.who == who && !asked.answer) asked.answer = {token, cause, 0, 0};
}

std::optional<FileOpened> FabricBackend::take_file(uint64_t token) {
  const auto asked = files_asked_.find(token);
  if (asked == files_asked_.end() || !asked->second.answer) return std::nullopt;
  const FileOpened answer = *asked->second.answer;
  files_asked_.erase(asked);
  return answer;
}

}  // namespace braid::transfer
