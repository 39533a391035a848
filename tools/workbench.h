// What measurements of copies stand on: streams, events and memory that end by themselves, and a
// bench with the contexts of all GPUs, an engine and the server's limit.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/options.h"
#include "base/status.h"
#include "cuda/driver.h"
#include "multipath/engine.h"

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

/// One copy, by the driver alone.
CUresult copy_natively(const cuda::Driver& driver, const multipath::Transfer& copy);

/// Several readings of one thing.
struct Readings {
  std::vector<double> values;
  double median() const;
  double lowest() const;
  double highest() const;
};

class Limit;
class WarmUp;
enum class Flow;

class Workbench {
 protected:
  Workbench(const cuda::Driver& driver, int target);
  ~Workbench();

  /// The contexts of all GPUs. The target's is current afterwards.
  Status open_gpus();
  /// And what measures. In the current context.
  Status open_engine(const Options& options);
  /// One reading more, GB/s.
  Status measure_limit(Flow flow, Readings& limit);
  /// Milliseconds from `begin_` to `end_`, both recorded.
  Result<double> elapsed_ms() const;

  const cuda::Driver& driver_;
  const int target_;
  std::vector<CUcontext> contexts_;  // of every GPU
  GpuObjects objects_;
  CUevent begin_ = nullptr;
  CUevent end_ = nullptr;
  std::unique_ptr<multipath::Engine> engine_;
  std::unique_ptr<WarmUp> warm_up_;

 private:
  std::unique_ptr<Limit> limit_;  // opened when it is first asked for
};

}  // namespace braid::tools
