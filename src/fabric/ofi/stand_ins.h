// libfabric's shm opens and maps the file of each endpoint that asks for a connection. It does so
// when it reads the request, and uses the mapping unchecked: without one the process faults. The
// file goes when its endpoint is closed, when remove_left_files() finds its process killed, or when
// somebody clears /dev/shm. Each of these may happen before the request is read. And a process at
// its limit of descriptors, or of memory, can open or map none.
//
// So libfabric opens and maps files by braid's functions. Where that fails, they return an empty
// region of a process with the same number; what libfabric writes there reaches nobody. That region
// is made when the first endpoint is opened, since nothing can be made at a limit. It is one for
// the process, takes no descriptor, and is never unmapped. Several peers may have it at once.
//
// Source: smr_progress_connreq (prov/shm/src/smr_progress.c) and smr_map_to_region
// (prov/util/src/util_shm.c) of libfabric 1.17.
#pragma once

#include <rdma/fi_domain.h>

#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "fabric/ofi/shm_region.h"

namespace braid::fabric::ofi {

/// Makes libfabric, a handle of dlopen, use these functions. Once, before its first endpoint.
Status stand_in_for_missing_files(void* libfabric);
/// Makes this process's stand-in, unless it has one. `like`: the region of an endpoint of its own.
Status prepare_stand_in(const RegionHead& like);

/// While it lives, this thread lets one endpoint of its own open the files of peers.
class StandIns {
 public:
  /// `own`: the endpoint's region, which outlives this object; null: not known.
  explicit StandIns(const RegionHead* own = nullptr);
  ~StandIns();
  StandIns(const StandIns&) = delete;
  StandIns& operator=(const StandIns&) = delete;

  /// Whether a peer has got a stand-in.
  bool has_any() const { return !names_.empty(); }
  /// Takes the peers that have one out of `peers`, the endpoint's table. Otherwise each would keep
  /// its place there.
  void free_places(fid_av& peers);

  // For the functions that libfabric calls.

  /// `file`: the file that was opened for this name, or -1. Returns the file that libfabric gets.
  int opened(const char* name, int file);
  /// The same with a file that is no peer's, which libfabric gets as it is.
  int opened_other(int file);
  /// The file at this path in /dev/shm, if it is the one that was opened last; otherwise -1.
  int last_opened(std::string_view path) const;
  /// The file cannot be mapped. False: it is not the one that was opened last.
  bool miss(int file);
  /// What is mapped in place of this file; null: the file itself.
  void* stand_in_for(int file) const;

 private:
  const RegionHead* own_;
  std::vector<std::string> names_;  // of the peers that have a stand-in
  std::string last_name_;
  int last_opened_ = -1;
  bool is_last_missed_ = false;
};

}  // namespace braid::fabric::ofi
