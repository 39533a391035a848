// Moves slices between memory of this process and files that it has exported itself.
#pragma once

#include <unordered_set>

#include "transfer/backends/own.h"
#include "transfer/exports.h"
#include "transfer/file_jobs.h"

namespace braid::transfer {

class FileBackend final : public OwnBackend {
 public:
  /// Both must outlive the backend. Their owner steps them.
  FileBackend(Exports& exports, FileJobs& jobs) : exports_(exports), jobs_(jobs) {}

  void post(uint32_t way, const Piece& piece) override;
  /// Ends a piece whose file is being opened, or that waits for others of its folder. What has
  /// begun ends once the file system has answered: it uses the caller's memory.
  void give_up(uint32_t way, uint64_t piece) override;

 private:
  void start(const Piece& piece, Cause cause, const OpenFilePointer& file);

  Exports& exports_;
  FileJobs& jobs_;
  std::unordered_set<uint64_t> opening_;  // pieces whose files are being opened
};

}  // namespace braid::transfer
