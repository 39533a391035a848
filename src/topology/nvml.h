// Facts of NVIDIA's management library that the CUDA driver does not have: PCIe links and NVLinks.
// It is opened at run time; if it is absent, these are unknown. Only calls with plain numbers and
// handles as arguments are used, so no structure of NVML is copied here.
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "topology/machine.h"

namespace braid::topology {

/// The NVLinks of one GPU that are up.
struct NvlinkFacts {
  int links = 0;
  int version = 0;         ///< NVLink generation; 0: unknown
  bool to_switch = false;  ///< the other ends are NVSwitches
};

class Nvml {
 public:
  using SymbolLookup = std::function<void*(const char* name)>;

  /// Opens libnvidia-ml.so.1. Empty when it is absent or does not start.
  static std::optional<Nvml> open();
  /// The same with functions from `lookup`.
  static std::optional<Nvml> load(const SymbolLookup& lookup);

  /// A GPU by bus address. Null if NVML has none there, or one of another name: CUDA's driver and
  /// NVML then describe different servers.
  void* find(const std::string& bus_id, const std::string& name) const;

  PcieSpeed pcie(void* device) const;
  NvlinkFacts nvlink(void* device) const;
  /// True if the two reach each other over NVLink; empty if NVML does not answer.
  std::optional<bool> joined(void* device_a, void* device_b) const;

 private:
  // NVML's own prototypes, its handles as void* and its enumerations as int (nvml.h).
  struct Functions {
    int (*nvmlInit_v2)();
    int (*nvmlDeviceGetHandleByPciBusId_v2)(const char*, void**);
    int (*nvmlDeviceGetName)(void*, char*, unsigned);
    int (*nvmlDeviceGetMaxPcieLinkGeneration)(void*, unsigned*);
    int (*nvmlDeviceGetCurrPcieLinkWidth)(void*, unsigned*);
    int (*nvmlDeviceGetNvLinkState)(void*, unsigned, int*);
    int (*nvmlDeviceGetNvLinkVersion)(void*, unsigned, unsigned*);
    int (*nvmlDeviceGetNvLinkRemoteDeviceType)(void*, unsigned, int*);
    int (*nvmlDeviceGetP2PStatus)(void*, void*, int, int*);
  };
  Functions call_{};
};

}  // namespace braid::topology
