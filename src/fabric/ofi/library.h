// libfabric, opened at its first use: braid does not link it. These few functions hand out tables,
// and most of libfabric's interface is inline functions over those tables.
#pragma once

#include <rdma/fabric.h>

#include <string>

#include "base/status.h"

namespace braid::fabric::ofi {

struct Library {
  decltype(&::fi_getinfo) getinfo = nullptr;
  decltype(&::fi_freeinfo) freeinfo = nullptr;
  decltype(&::fi_dupinfo) dupinfo = nullptr;
  decltype(&::fi_fabric) fabric = nullptr;
  decltype(&::fi_strerror) strerror = nullptr;
  decltype(&::fi_version) version = nullptr;

  void* handle = nullptr;  ///< of dlopen
  /// See robust_locks.h. If false, a stopped process may hold up this one.
  bool has_robust_locks = false;
  /// See stand_ins.h. If false, a peer whose file is gone may end this process.
  bool has_stand_ins = false;
  /// See guard.h. If false, engines without a secret have no rails over TCP.
  bool has_guards = false;

  /// The text of a negative answer, such as "Connection refused (111)".
  std::string describe(int64_t answer) const;
};

/// Opened once, and never closed: providers leave threads and handlers behind. From any thread.
Result<const Library*> library();

}  // namespace braid::fabric::ofi
