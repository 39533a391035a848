// Device facts that entry points need.
#pragma once

#include <cuda.h>

#include <string>

#include "emulator/api/entry.h"
#include "topology/server.h"

namespace braid::emulator {

CUresult check_device(const Call& call, CUdevice device);

struct PciAddress {
  unsigned domain = 0;
  unsigned bus = 0;
  unsigned device = 0;
  bool operator==(const PciAddress&) const = default;
};
/// "0000:18:00.0"; false when the text is not an address.
bool parse_pci(const std::string& text, PciAddress& address);

/// The value of an attribute; CUDA_ERROR_INVALID_VALUE for one that CUDA does not have.
CUresult device_attribute(const World& world, CUdevice device, CUdevice_attribute attribute,
                          int& value);

}  // namespace braid::emulator
