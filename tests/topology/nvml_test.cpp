// NVML through a library of the test's own.
#include "topology/nvml.h"

#include <gtest/gtest.h>

#include <cstring>
#include <map>

namespace braid::topology {
namespace {

int start() { return 0; }
int refuse_to_start() { return 9; }  // NVML_ERROR_DRIVER_NOT_LOADED

int handle(const char* bus_id, void** device) {
  static int devices[2];
  if (std::strcmp(bus_id, "0000:18:00.0") == 0) return *device = &devices[0], 0;
  if (std::strcmp(bus_id, "0000:3b:00.0") == 0) return *device = &devices[1], 0;
  return 6;  // NVML_ERROR_NOT_FOUND
}

int name(void*, char* text, unsigned bytes) {
  std::strncpy(text, "NVIDIA H200", bytes);
  return 0;
}

int generation(void*, unsigned* value) { return *value = 5, 0; }
int width(void*, unsigned* value) { return *value = 16, 0; }
int link_state(void*, unsigned link, int* up) { return *up = link < 17, link == 17 ? 2 : 0; }
int link_version(void*, unsigned, unsigned* version) { return *version = 6, 0; }  // NVLink 4.0
int remote_type(void*, unsigned, int* type) { return *type = 2, 0; }
int p2p(void* a, void* b, int, int* status) { return *status = a == b ? 1 : 0, 0; }

using Symbols = std::map<std::string, void*>;

template <typename Function>
void* pointer(Function* function) {
  return reinterpret_cast<void*>(function);
}

Symbols all() {
  return {{"nvmlInit_v2", pointer(start)},
          {"nvmlDeviceGetHandleByPciBusId_v2", pointer(handle)},
          {"nvmlDeviceGetName", pointer(name)},
          {"nvmlDeviceGetMaxPcieLinkGeneration", pointer(generation)},
          {"nvmlDeviceGetCurrPcieLinkWidth", pointer(width)},
          {"nvmlDeviceGetNvLinkState", pointer(link_state)},
          {"nvmlDeviceGetNvLinkVersion", pointer(link_version)},
          {"nvmlDeviceGetNvLinkRemoteDeviceType", pointer(remote_type)},
          {"nvmlDeviceGetP2PStatus", pointer(p2p)}};
}

std::optional<Nvml> load(const Symbols& symbols) {
  return Nvml::load([&](const char* symbol) -> void* {
    const auto found = symbols.find(symbol);
    return found == symbols.end() ? nullptr : found->second;
  });
}

TEST(NvmlTest, ReadsLinks) {
  const auto nvml = load(all());
  ASSERT_TRUE(nvml);
  void* first = nvml->find("0000:18:00.0", "NVIDIA H200");
  void* second = nvml->find("0000:3b:00.0", "NVIDIA H200");
  ASSERT_TRUE(first && second);
  EXPECT_EQ(nvml->pcie(first).generation, 5);
  EXPECT_EQ(nvml->pcie(first).lanes, 16);
  EXPECT_EQ(nvml->nvlink(first).links, 17);
  EXPECT_EQ(nvml->nvlink(first).version, 4);
  EXPECT_TRUE(nvml->nvlink(first).to_switch);
  EXPECT_EQ(nvml->joined(first, second), std::optional<bool>(true));
}

TEST(NvmlTest, AnotherServersGpusAreNotFound) {
  const auto nvml = load(all());
  EXPECT_EQ(nvml->find("0000:99:00.0", "NVIDIA H200"), nullptr);
  EXPECT_EQ(nvml->find("0000:18:00.0", "NVIDIA H20"), nullptr);
}

TEST(NvmlTest, AnyMissingFunctionIsAFactNotKnown) {
  for (const auto& [missing, unused] : all()) {
    Symbols symbols = all();
    symbols.erase(missing);
    const auto nvml = load(symbols);
    if (missing == "nvmlInit_v2") {
      EXPECT_FALSE(nvml);
      continue;
    }
    ASSERT_TRUE(nvml) << missing;
    int device = 0;
    nvml->find("0000:18:00.0", "NVIDIA H200");
    nvml->pcie(&device);
    nvml->nvlink(&device);
    nvml->joined(&device, &device);
  }
}

TEST(NvmlTest, ALibraryThatDoesNotStartIsAbsent) {
  Symbols symbols = all();
  symbols["nvmlInit_v2"] = pointer(refuse_to_start);
  EXPECT_FALSE(load(symbols));
}

}  // namespace
}  // namespace braid::topology
