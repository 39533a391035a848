// libfabric's shm opens the file of each endpoint that asks for a connection. It does so when the
// request is read, and uses the mapping unseen: if the file is gone, the process faults. The file
// goes when its endpoint is closed, when remove_left_files() finds its process killed, and when
// somebody clears /dev/shm. All of that may come before the request is read.
//
// So libfabric opens files by functions of braid's. Where there is none, they give it an empty
// region of a process that has the same number: what libfabric writes there reaches nobody.
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

/// Makes libfabric, a handle of dlopen, use them. Once, before its first endpoint.
Status stand_in_for_missing_files(void* libfabric);

/// While it lives, this thread makes progress of one endpoint of its own.
class StandIns {
 public:
  /// The endpoint's libfabric address, which stays.
  explicit StandIns(Bytes endpoint);
  ~StandIns();
  StandIns(const StandIns&) = delete;
  StandIns& operator=(const StandIns&) = delete;

  /// Takes those that are gone out of the table of peers, which belongs to the endpoint. Otherwise
  /// each keeps its place there.
  void free_places(fid_av& peers);

  // For the functions that libfabric calls.

  /// `file`: what was opened for this name, or -1. What libfabric is to get.
  int opened(const char* name, int file);
  /// The file at this path in /dev/shm, if it is the last that was opened; or -1.
  int last_opened(std::string_view path) const;

 private:
  const Bytes endpoint_;
  std::vector<std::string> names_;  // of those that are gone
  std::string last_name_;
  int last_opened_ = -1;
};

}  // namespace braid::fabric::ofi
