// Engine: files that segments' owners have exported.
#include "transfer/engine.h"
#include "transfer/failure.h"

namespace braid::transfer {

Result<uint64_t> Engine::ask_for_file(uint64_t segment, const std::string& path, Rights wanted) {
  const Segment* found = segments_.find(segment);
  if (found == nullptr) return no_such_segment();
  if (path.size() > kPathBytesMax)
    return Status::error("the path is longer than " + std::to_string(kPathBytesMax) + " bytes");
  const Peer& peer = *peers_.find(found->peer);
  const uint64_t token = ++tokens_;
  if (peer.is_self) {
    own_files_[token] = std::nullopt;
    owned_->exports.open({}, path, wanted,
                         [this, token](Cause cause, uint64_t file, uint64_t size) {
                           const auto asked = own_files_.find(token);
                           if (asked != own_files_.end())
                             asked->second = FileOpened{token, cause, file, size};
                         });
  } else {
    fabric_.ask_for_file(peer.who, {token, wanted, path});
  }
  return token;
}

std::optional<FileOpened> Engine::take_file(uint64_t token) {
  const auto own = own_files_.find(token);
  if (own == own_files_.end()) return fabric_.take_file(token);
  const std::optional<FileOpened> answer = own->second;
  if (answer) own_files_.erase(own);
  return answer;
}

void Engine::forget_file(uint64_t token) {
  own_files_.erase(token);
  fabric_.forget_file(token);
}

/// A request that was cancelled, or whose deadline has passed, does not wait for a file system.
bool Engine::give_up_on_files() {
  std::vector<uint64_t> stopped;
  for (const uint64_t piece : file_.opening()) {
    const auto posted = posted_.find(through_ ? through_->piece_of(piece) : piece);
    if (posted != posted_.end() && scheduler_.is_stopped(posted->second.request))
      stopped.push_back(piece);
  }
  for (const uint64_t piece : stopped) file_.give_up(piece);
  return !stopped.empty();
}

Result<uint64_t> Engine::add_file(uint64_t segment, const FileOpened& opened) {
  const Segment* found = segments_.find(segment);
  if (found == nullptr) return no_such_segment();
  if (opened.cause != Cause::kNone) return failure(opened.cause);
  ++peers_.find(found->peer)->segments;
  return segments_.add({found->peer, {}, {}, {}, opened.file, opened.size_bytes});
}

Result<uint64_t> Engine::file_bytes(uint64_t segment) const {
  const Segment* found = segments_.find(segment);
  if (found == nullptr) return no_such_segment();
  return found->file != 0 ? Result(found->file_bytes) : Status::error("this segment is no file");
}

}  // namespace braid::transfer
