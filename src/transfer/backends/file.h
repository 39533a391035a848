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
  /// Pieces whose files are being opened.
  const std::unordered_set<uint64_t>& opening() const { return opening_; }
  /// Ends such a piece: its request was stopped.
  void give_up(uint64_t piece);

 private:
  void start(const Piece& piece, Cause cause, const OpenFilePointer& file);

  Exports& exports_;
  FileJobs& jobs_;
  std::unordered_set<uint64_t> opening_;
};

}  // namespace braid::transfer
