// Engine: files that segments' owners have exported.
#include <utility>

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
/// Other requests end by themselves, or their way is fenced.
bool Engine::give_up_on_files() {
  const std::vector<uint64_t> unwanted = std::exchange(unwanted_, {});
  for (const uint64_t posting : unwanted) give_up(posting);
  return !unwanted.empty();
}

void Engine::give_up(uint64_t posting) {
  const auto posted = posted_.find(posting);
  if (posted == posted_.end()) return;
  const Running* running = running_.find(posted->second.request);
  const auto path = paths_.find(posted->second.path);
  if (running == nullptr || running->file == 0 || path == paths_.end()) return;
  if (path->second.is_through_host)
    through_->give_up(posting);
  else
    path->second.backend->give_up(path->second.backend_way, posting);
}

Result<uint64_t> Engine::add_file(uint64_t segment, const FileOpened& opened) {
  const Segment* found = segments_.find(segment);
  if (found == nullptr) return no_such_segment();
  if (opened.cause != Cause::kNone) return failure(opened.cause);
  Peer& peer = *peers_.find(found->peer);
  ++peer.segments;
  const uint64_t folder = peer.is_self ? owned_->exports.folder_of(opened.file) : 0;
  return segments_.add({found->peer, {}, {}, {}, opened.file, opened.size_bytes, folder});
}

Result<uint64_t> Engine::file_bytes(uint64_t segment) const {
  const Segment* found = segments_.find(segment);
  if (found == nullptr) return no_such_segment();
  return found->file != 0 ? Result(found->file_bytes) : Status::error("this segment is no file");
}

}  // namespace braid::transfer
