// Streams, events and memory for measurements, which end by themselves.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "base/status.h"
#include "cuda/driver.h"
#include "multipath/transfer.h"

namespace braid::tools {

/// Streams, events and memory of whatever contexts are current when they are made. They end with
/// the object. The first failure is kept; what is made after it is null.
class GpuObjects {
 public:
  explicit GpuObjects(const cuda::Driver& driver) : driver_(driver) {}
  ~GpuObjects();
  GpuObjects(const GpuObjects&) = delete;
  GpuObjects& operator=(const GpuObjects&) = delete;

  CUstream stream();
  CUevent event(unsigned flags = CU_EVENT_DEFAULT);
  CUdeviceptr memory(uint64_t size_bytes);
  char* pinned(uint64_t size_bytes);  ///< for all GPUs

  const Status& status() const { return status_; }

 private:
  struct Made {
    CUcontext context;
    std::function<void()> end;
  };
  template <typename Object, typename Make, typename End>
  Object make(const std::string& what, Make make, End end);

  const cuda::Driver& driver_;
  Status status_;
  std::vector<Made> made_;
};

}  // namespace braid::tools
