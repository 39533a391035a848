// libfabric's shm opens the file of each endpoint that asks for a connection. It does so when it
// reads the request, and uses the mapping unchecked: if the file is gone, the process faults. The
// file goes when its endpoint is closed, when remove_left_files() finds its process killed, or when
// somebody clears /dev/shm. Each of these may happen before the request is read.
//
// So libfabric opens files by braid's functions. If a file is missing, they return an empty region
// of a process with the same number; what libfabric writes there reaches nobody.
//
// Source: smr_progress_connreq (prov/shm/src/smr_progress.c) and smr_map_to_region
// (prov/util/src/util_shm.c) of libfabric 1.17.
#pragma once

#include <rdma/fi_domain.h>

#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "fabric/domain.h"

namespace braid::fabric::ofi {

/// Makes libfabric, a handle of dlopen, use these functions. Once, before its first endpoint.
Status stand_in_for_missing_files(void* libfabric);

/// While it lives, this thread makes progress of one endpoint of its own.
class StandIns {
 public:
  /// `endpoint`: its libfabric address, which outlives this object.
  explicit StandIns(Bytes endpoint);
  ~StandIns();
  StandIns(const StandIns&) = delete;
  StandIns& operator=(const StandIns&) = delete;

  /// Takes the peers whose files are gone out of `peers`, the endpoint's table. Otherwise each
  /// would keep its place there.
  void free_places(fid_av& peers);

  // For the functions that libfabric calls.

  /// `file`: the file that was opened for this name, or -1. Returns the file that libfabric gets.
  int opened(const char* name, int file);
  /// The file at this path in /dev/shm, if it is the one that was opened last; otherwise -1.
  int last_opened(std::string_view path) const;

 private:
  const Bytes endpoint_;
  std::vector<std::string> names_;  // of the peers whose files are gone
  std::string last_name_;
  int last_opened_ = -1;
};

}  // namespace braid::fabric::ofi
