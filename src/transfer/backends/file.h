// Moves slices between memory of this process and files that it has exported itself.
#pragma once

#include "transfer/backends/own.h"
#include "transfer/exports.h"
#include "transfer/file_jobs.h"

namespace braid::transfer {

class FileBackend final : public OwnBackend {
 public:
  /// Both must outlive the backend. The owner of `jobs` steps them.
  FileBackend(Exports& exports, FileJobs& jobs) : exports_(exports), jobs_(jobs) {}

  void post(uint32_t way, const Piece& piece) override;

 private:
  Exports& exports_;
  FileJobs& jobs_;
};

}  // namespace braid::transfer
