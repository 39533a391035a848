// What the tests of `braid run --lend` share: programs that are given some GPUs of the h20x8.
#pragma once

#include <fstream>
#include <string>

#include "tests/preload/programs.h"

namespace braid::test {

// Every GPU of the server, lent or not.
inline Words pci_addresses() {
  Words addresses;
  const auto profile = nlohmann::json::parse(std::ifstream(BRAID_PROFILES "/h20x8.json"));
  for (const auto& gpu : profile.at("gpus")) addresses.push_back(gpu.at("pci_bus_id"));
  return addresses;
}

inline Environment visible(const std::string& devices) {
  return {{"CUDA_VISIBLE_DEVICES", devices}};
}

inline size_t paths_to(const nlohmann::json& statistics, int target) {
  size_t count = 0;
  for (const auto& path : statistics.at("paths")) count += path.at("target") == target ? 1 : 0;
  return count;
}

}  // namespace braid::test
