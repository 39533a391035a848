// What an engine has that its rails, and through them its peers, use.
#pragma once

#include <memory>

#include "transfer/buffers.h"
#include "transfer/exports.h"
#include "transfer/file_jobs.h"
#include "transfer/gpu_jobs.h"
#include "transfer/sharing/sharing.h"

namespace braid::transfer {

/// What peers may access in this process. It outlives the rails.
struct Owned {
  std::unique_ptr<GpuJobs> gpu;  ///< null: this process moves no GPU memory. It goes last: it waits
                                 ///< for lanes, which the buffers hold too
  Buffers buffers;
  Exports exports;
  std::unique_ptr<FileJobs> jobs;
  std::unique_ptr<Sharing> sharing = nullptr;  ///< null: peers map nothing

  /// False: this process may open no more descriptors. Nobody would hear what has ended.
  bool can_tell() const {
    return exports.descriptor() >= 0 && jobs->descriptor() >= 0 &&
           (gpu == nullptr || gpu->descriptor() >= 0);
  }
};

}  // namespace braid::transfer
