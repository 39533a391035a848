// The owner's side of memory that processes of one server share. Of GPU memory two kinds can be
// shared: mappings that can be exported as a file descriptor (cuMemCreate with
// CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR), and memory of cuMemAlloc, whose whole allocation the
// driver shares (legacy IPC). Of host memory: what was allocated for it (shared_memory.h).
#pragma once

#include <memory>
#include <mutex>
#include <optional>

#include "cuda/driver.h"
#include "fabric/gpu/lane.h"
#include "fabric/local/mapping.h"
#include "fabric/local/socket.h"

namespace braid::fabric::local {

struct Exported {
  Offer offer;
  std::shared_ptr<const File> file;  ///< Offer::kMapping and Offer::kPages; else null
};

/// Decides from the driver's attributes of the pointer, which needs no lock of the driver's. An
/// error says what kind of memory can be shared.
Status check_exportable(const cuda::Driver& driver, MutableBytes memory);

/// Of host memory. Nothing: it was not allocated to be shared.
std::optional<Exported> export_pages(MutableBytes memory);

/// The export of one region of GPU memory. Once a peer asks for the memory, the lane's thread asks
/// the driver for handles. If the driver makes that thread wait, only the offer of this region is
/// late.
class Export : public std::enable_shared_from_this<Export> {
 public:
  Export(const cuda::Driver& driver, MutableBytes memory) : driver_(driver), memory_(memory) {}

  /// The first call begins it. True: it has ended.
  bool has_ended(gpu::Lane& lane);
  /// The result, once it has ended. Null: the driver has refused.
  const Exported* result() const;

 private:
  void ask(CUresult context);

  const cuda::Driver& driver_;
  const MutableBytes memory_;
  bool has_begun_ = false;
  mutable std::mutex mutex_;
  bool has_ended_ = false;            // under it, below too
  std::optional<Exported> exported_;  // does not change once it has ended
};

}  // namespace braid::fabric::local
