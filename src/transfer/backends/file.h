// Slices between memory of this process and files that it has exported itself.
#pragma once

#include <utility>
#include <vector>

#include "transfer/backend.h"
#include "transfer/exports.h"
#include "transfer/file_jobs.h"

namespace braid::transfer {

class FileBackend final : public Backend {
 public:
  /// Both stay. Whoever has made `jobs` steps them.
  FileBackend(const Exports& exports, FileJobs& jobs) : exports_(exports), jobs_(jobs) {}

  void post(uint32_t way, const Piece& piece) override;
  void probe(uint32_t way, uint64_t id) override;
  void fence(uint32_t way) override;
  bool step(uint64_t now_ns) override;
  std::vector<BackendEvent> take_events() override { return std::exchange(events_, {}); }
  uint64_t next_deadline_ns() const override;
  std::vector<int> wait_descriptors() override { return {}; }
  bool has_to_be_asked() const override { return false; }
  bool arm() override { return events_.empty(); }

 private:
  const Exports& exports_;
  FileJobs& jobs_;
  size_t under_way_ = 0;
  std::vector<uint32_t> fencing_;  // ways, once nothing is under way
  std::vector<BackendEvent> events_;
};

/// Whether a peer, or this process, may do this with the file.
Cause check(const Exports& exports, uint64_t number, Rights right, const OpenFile*& file);

}  // namespace braid::transfer
