// Rail: files that peers read. Bytes pass through memory of the owner in parts, several at once. A
// part is cut when there is memory for it. Memory is allocated when it is first needed, and goes to
// the folders of links in turn. A link whose peer takes nothing keeps its parts, and so does a
// folder whose file system does not answer; the others have theirs.
#include <algorithm>
#include <utility>

#include "transfer/rail.h"

namespace braid::transfer {
namespace {

constexpr size_t kServingMax = 1 << 14;
constexpr size_t kPartsMax = 4096;      // of a read: as many slices as fabric cuts a write into
constexpr size_t kHeldMax = 256;        // parts of memory, of all links together;
constexpr size_t kHeldOfLink = 16;      // of one link while there are fewer,
constexpr size_t kHeldAtLeast = 2;      // and of each folder of a link in any case
constexpr size_t kReadingOfFolder = 8;  // of those of a link, that wait for its file system

}  // namespace

Cause Rail::serve_file(uint64_t id, Link& link, const ReadRequest& read) {
  OpenFilePointer file;  // null: its first part opens it
  if (const Cause wrong = owned_.exports.find(read.file, kMayRead, file); wrong != Cause::kNone)
    return wrong;
  const auto lent = link.lent.find(read.lent);
  if (lent == link.lent.end() || read.size_bytes == 0) return Cause::kLocalMemory;
  if (read.address >= kFileBytesMax) return Cause::kOutside;
  if (link.serving >= kServingMax || read.size_bytes > kPartsMax * kStagedBytes)
    return Cause::kTooMuch;
  const uint64_t folder = owned_.exports.folder_of(read.file);
  ++link.serving;
  // The parts are as fabric would cut one write of all bytes, so that the number of immediates is
  // the same.
  const uint64_t step_bytes = std::min(fabric::slice_bytes(read.size_bytes), kStagedBytes);
  link.folders[folder].waiting.push_back(
      file_reads_.add({id, folder, read, lent->second, step_bytes, 0, 0, Cause::kNone, 0, false}));
  put_in_turn({id, folder});
  read_files();
  return Cause::kNone;
}

void Rail::put_in_turn(const FileReader& reader) {
  FolderReads& folder = links_.find(reader.link)->folders[reader.folder];
  if (!std::exchange(folder.is_in_turn, true)) file_readers_.push_back(reader);
}

/// Reads a part for each folder of a link in turn, until none gets memory.
void Rail::read_files() {
  for (size_t without_room = 0; without_room < file_readers_.size();) {
    const FileReader reader = file_readers_.front();
    file_readers_.pop_front();
    Link* link = links_.find(reader.link);
    if (link == nullptr) continue;
    FolderReads& folder = link->folders[reader.folder];
    if (folder.waiting.empty()) {
      folder.is_in_turn = false;
      continue;
    }
    without_room = read_next_part(*link, folder) ? 0 : without_room + 1;
    file_readers_.push_back(reader);
  }
}

/// However many folders and links keep what they have, every other one has a little.
bool Rail::may_take_part(const Link& link, const FolderReads& folder) const {
  if (folder.parts < kHeldAtLeast) return true;
  const bool is_short = stage_parts_.empty() && stage_parts_held_ >= kHeldMax;
  return !is_short && link.stage_parts < kHeldOfLink && folder.reading < kReadingOfFolder;
}

/// False: there is no memory for it now.
bool Rail::read_next_part(Link& link, FolderReads& folder) {
  if (!may_take_part(link, folder)) return false;
  const uint64_t number = folder.waiting.front();
  OpenFilePointer file;
  const Cause wrong = owned_.exports.find(file_reads_.find(number)->request.file, kMayRead, file);
  if (wrong != Cause::kNone) {
    file_reads_.find(number)->cause = wrong;
    end_read_if_over(number);
    return true;
  }
  if (file == nullptr) {
    folder.waiting.pop_front();
    reopen(number, link);
    return true;
  }
  StagePart memory = take_stage_part();
  if (memory.region == 0) {
    if (folder.parts > 0) return false;
    file_reads_.find(number)->cause = Cause::kTooMuch;
    end_read_if_over(number);
    return true;
  }
  start_part(link, folder, std::move(file), std::move(memory));
  return true;
}

/// Begins the next part of the folder's first read.
void Rail::start_part(Link& link, FolderReads& folder, OpenFilePointer file, StagePart memory) {
  const uint64_t number = folder.waiting.front();
  ++link.stage_parts;
  ++folder.parts;
  ++folder.reading;
  FileRead& read = *file_reads_.find(number);
  const uint64_t offset_bytes = read.cut_bytes;
  const uint64_t size_bytes = std::min(read.step_bytes, read.request.size_bytes - offset_bytes);
  read.cut_bytes += size_bytes;
  ++read.parts;
  if (read.cut_bytes == read.request.size_bytes) folder.waiting.pop_front();
  const MutableBytes bytes = memory.stage->bytes().first(size_bytes);
  const auto stage = memory.stage;
  const uint64_t part = read_parts_.add({number, offset_bytes, size_bytes, std::move(memory)});
  owned_.jobs->start({false, std::move(file), bytes, read.request.address + offset_bytes,
                      [this, part, stage](Cause cause) { part_read(part, cause); }});
}

/// Opens a file that was closed. The read waits for it without memory, and the link's other reads
/// go on.
void Rail::reopen(uint64_t number, const Link& of) {
  owned_.exports.reopen(of.who, file_reads_.find(number)->request.file,
                        [this, number](Cause cause, const OpenFilePointer&) {
                          FileRead* read = file_reads_.find(number);
                          if (read == nullptr) return;
                          Link* link = links_.find(read->link);
                          if (link == nullptr || link->is_closed) cause = Cause::kPathFailed;
                          if (read->cause == Cause::kNone) read->cause = cause;
                          if (read->cause != Cause::kNone) return end_read_if_over(number);
                          link->folders[read->folder].waiting.push_front(number);
                          put_in_turn({read->link, read->folder});
                          read_files();
                        });
}

/// The region of the result is 0 if there is no memory.
Rail::StagePart Rail::take_stage_part() {
  StagePart part;
  if (!stage_parts_.empty()) {
    part = std::move(stage_parts_.back());
    stage_parts_.pop_back();
  } else {
    part.stage = Stage::make(1);
    const auto region = part.stage == nullptr ? Result<uint64_t>(Status::error("no memory"))
                                              : engine_->add_region(part.stage->bytes());
    if (!region.ok()) return {};
    part.region = region.value();
  }
  ++stage_parts_held_;
  return part;
}

void Rail::part_read(uint64_t number, Cause cause) {
  ReadPart& part = *read_parts_.find(number);
  FileRead& read = *file_reads_.find(part.read);
  Link* link = links_.find(read.link);
  if (link != nullptr) --link->folders[read.folder].reading;
  if (link == nullptr || link->is_closed) cause = Cause::kPathFailed;
  if (cause == Cause::kNone) cause = read.cause;
  if (cause == Cause::kNone) {
    const fabric::Slice slice{0, read.request.offset_bytes + part.offset_bytes, part.size_bytes};
    const Result<uint64_t> ticket = engine_->write(part.memory.region, read.target, slice,
                                                   read.request.immediate, now_ns_ + kLongestNs);
    if (ticket.ok()) {
      part.is_landing = true;
      ++read.landing;
      (void)engine_->when_ended(ticket.value(),
                                under_way_.add({Doing::kServingFile,
                                                read.link,
                                                {{read.request.id, part.size_bytes}},
                                                0,
                                                ticket.value(),
                                                number}));
      return;
    }
    cause = Cause::kLocalMemory;
  }
  end_read_part(number, cause);
  read_files();
}

void Rail::part_served(const UnderWay& served, bool is_done) {
  if (Link* link = links_.find(served.link); link != nullptr && is_done)
    link->counts.served_bytes += served.shares.front().size_bytes;
  end_read_part(served.part, is_done ? Cause::kNone : Cause::kPathFailed);
  read_files();
}

/// Ends a part, and frees its memory for the next one. A part that failed on its way may land
/// still, so that counts more than an earlier cause.
void Rail::end_read_part(uint64_t number, Cause cause) {
  ReadPart part = std::move(*read_parts_.find(number));
  read_parts_.erase(number);
  --stage_parts_held_;
  stage_parts_.push_back(std::move(part.memory));
  FileRead& read = *file_reads_.find(part.read);
  if (Link* link = links_.find(read.link); link != nullptr) {
    --link->stage_parts;
    --link->folders[read.folder].parts;
  }
  if (read.cause == Cause::kNone || cause == Cause::kPathFailed) read.cause = cause;
  if (part.is_landing) --read.landing;
  --read.parts;
  end_read_if_over(part.read);
}

/// Sends a refusal only once nothing of the read can land. It does not wait for the file system.
void Rail::end_read_if_over(uint64_t number) {
  FileRead& read = *file_reads_.find(number);
  Link* link = links_.find(read.link);
  if (read.cause != Cause::kNone && link != nullptr) {
    std::erase(link->folders[read.folder].waiting, number);
    if (!link->is_closed && read.landing == 0 && !std::exchange(read.is_refused, true))
      refuse(read.link, *link, read.request.id, read.cause);
  }
  const bool is_cut = read.cause != Cause::kNone || read.cut_bytes == read.request.size_bytes;
  if (!is_cut || read.parts > 0) return;
  if (link != nullptr) --link->serving;
  file_reads_.erase(number);
}

/// Ends the file reads of a link that ends. Parts under way end by themselves.
void Rail::end_file_reads(Link& link) {
  for (auto& [number_of_folder, folder] : link.folders)
    for (const uint64_t number : std::exchange(folder.waiting, {})) {
      file_reads_.find(number)->cause = Cause::kPathFailed;
      end_read_if_over(number);
    }
}

}  // namespace braid::transfer
