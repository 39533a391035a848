// Slices between memory of this process and files that it has exported itself.
#pragma once

#include "transfer/backends/own.h"
#include "transfer/exports.h"
#include "transfer/file_jobs.h"

namespace braid::transfer {

class FileBackend final : public OwnBackend {
 public:
  /// Both stay. Whoever has made `jobs` steps them.
  FileBackend(const Exports& exports, FileJobs& jobs) : exports_(exports), jobs_(jobs) {}

  void post(uint32_t way, const Piece& piece) override;

 private:
  const Exports& exports_;
  FileJobs& jobs_;
};

/// Whether a peer, or this process, may do this with the file.
Cause check(const Exports& exports, uint64_t number, Rights right, const OpenFile*& file);

}  // namespace braid::transfer
