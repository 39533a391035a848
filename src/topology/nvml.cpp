#include "topology/nvml.h"

#include <dlfcn.h>
#include <iterator>

namespace braid::topology {
namespace {

// From nvml.h.
constexpr int kSuccess = 0;          // NVML_SUCCESS
constexpr int kLinkUp = 1;           // NVML_FEATURE_ENABLED
constexpr int kRemoteIsSwitch = 2;   // NVML_NVLINK_DEVICE_TYPE_SWITCH
constexpr int kP2pOverNvlink = 2;    // NVML_P2P_CAPS_INDEX_NVLINK
constexpr int kP2pOk = 0;            // NVML_P2P_STATUS_OK
constexpr unsigned kMostLinks = 18;  // NVML_NVLINK_MAX_LINKS
constexpr unsigned kNameBytes = 96;  // NVML_DEVICE_NAME_V2_BUFFER_SIZE

template <typename Function>
void fill(Function& function, const Nvml::SymbolLookup& lookup, const char* name) {
  function = reinterpret_cast<Function>(lookup(name));
}

// False where this NVML has no such function.
template <typename... Parameters, typename... Arguments>
bool ask(int (*function)(Parameters...), Arguments... arguments) {
  return function != nullptr && function(arguments...) == kSuccess;
}

}  // namespace

std::optional<Nvml> Nvml::load(const SymbolLookup& lookup) {
  Nvml nvml;
#define BRAID_FILL(name) fill(nvml.call_.name, lookup, #name)
  BRAID_FILL(nvmlInit_v2);
  BRAID_FILL(nvmlDeviceGetHandleByPciBusId_v2);
  BRAID_FILL(nvmlDeviceGetName);
  BRAID_FILL(nvmlDeviceGetMaxPcieLinkGeneration);
  BRAID_FILL(nvmlDeviceGetCurrPcieLinkWidth);
  BRAID_FILL(nvmlDeviceGetNvLinkState);
  BRAID_FILL(nvmlDeviceGetNvLinkVersion);
  BRAID_FILL(nvmlDeviceGetNvLinkRemoteDeviceType);
  BRAID_FILL(nvmlDeviceGetP2PStatus);
#undef BRAID_FILL
  // Never shut down again: the library stays for the life of the process, and init is counted.
  if (!ask(nvml.call_.nvmlInit_v2)) return {};
  return nvml;
}

std::optional<Nvml> Nvml::open() {
  void* library = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) return {};
  return load([library](const char* name) { return dlsym(library, name); });
}

void* Nvml::find(const std::string& bus_id, const std::string& name) const {
  void* device = nullptr;
  char its_name[kNameBytes] = {};
  const bool is_there = ask(call_.nvmlDeviceGetHandleByPciBusId_v2, bus_id.c_str(), &device) &&
                        ask(call_.nvmlDeviceGetName, device, its_name, kNameBytes);
  return is_there && name == its_name ? device : nullptr;
}

PcieSpeed Nvml::pcie(void* device) const {
  unsigned generation = 0;
  unsigned lanes = 0;
  if (!ask(call_.nvmlDeviceGetMaxPcieLinkGeneration, device, &generation) ||
      !ask(call_.nvmlDeviceGetCurrPcieLinkWidth, device, &lanes))
    return {};
  return {static_cast<int>(generation), static_cast<int>(lanes)};
}

// NVML counts NVLink's versions, 1.0, 2.0, 2.2, 3.0, 3.1, 4.0, 5.0, from 1 (seen on H200: 6).
int major_version(unsigned nvml_version) {
  constexpr int kMajor[] = {0, 1, 2, 2, 3, 3, 4, 5};
  return nvml_version < std::size(kMajor) ? kMajor[nvml_version] : kMajor[std::size(kMajor) - 1];
}

NvlinkFacts Nvml::nvlink(void* device) const {
  NvlinkFacts facts;
  for (unsigned link = 0; link < kMostLinks; ++link) {
    int state = 0;
    if (!ask(call_.nvmlDeviceGetNvLinkState, device, link, &state) || state != kLinkUp) continue;
    ++facts.links;
    unsigned version = 0;
    if (ask(call_.nvmlDeviceGetNvLinkVersion, device, link, &version))
      facts.version = major_version(version);
    int remote = 0;
    if (ask(call_.nvmlDeviceGetNvLinkRemoteDeviceType, device, link, &remote))
      facts.to_switch = facts.to_switch || remote == kRemoteIsSwitch;
  }
  return facts;
}

std::optional<bool> Nvml::joined(void* device_a, void* device_b) const {
  int status = 0;
  if (!ask(call_.nvmlDeviceGetP2PStatus, device_a, device_b, kP2pOverNvlink, &status)) return {};
  return status == kP2pOk;
}

}  // namespace braid::topology
