// Discovery through a driver of the test's own: two GPUs, no NVML, no sysfs that knows them.
#include "topology/discover.h"

#include <gtest/gtest.h>

#include <cstdio>

namespace braid::topology {
namespace {

int g_count = 2;
int g_atomics = 1;
CUresult g_init = CUDA_SUCCESS;

CUresult init(unsigned) { return g_init; }
CUresult count(int* value) { return *value = g_count, CUDA_SUCCESS; }
CUresult get(CUdevice* device, int ordinal) { return *device = ordinal, CUDA_SUCCESS; }
CUresult total(size_t* bytes, CUdevice) { return *bytes = size_t{96} << 30, CUDA_SUCCESS; }

CUresult name(char* text, int bytes, CUdevice) {
  std::snprintf(text, static_cast<size_t>(bytes), "NVIDIA Test");
  return CUDA_SUCCESS;
}

CUresult bus_id(char* text, int bytes, CUdevice device) {
  std::snprintf(text, static_cast<size_t>(bytes), "FFFF:E%d:00.0", device);
  return CUDA_SUCCESS;
}

CUresult attribute(int* value, CUdevice_attribute which, CUdevice device) {
  switch (which) {
    case CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT: return *value = 78, CUDA_SUCCESS;
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR: return *value = 9, CUDA_SUCCESS;
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR: return *value = 0, CUDA_SUCCESS;
    case CU_DEVICE_ATTRIBUTE_HOST_NUMA_ID: return *value = 3 * device, CUDA_SUCCESS;
    default: return CUDA_ERROR_INVALID_VALUE;
  }
}

CUresult access(int* value, CUdevice, CUdevice) { return *value = 1, CUDA_SUCCESS; }
CUresult p2p(int* value, CUdevice_P2PAttribute, CUdevice, CUdevice) {
  return *value = g_atomics, CUDA_SUCCESS;
}

CUresult error_name(CUresult, const char** text) {
  return *text = "CUDA_ERROR_NO_DEVICE", CUDA_SUCCESS;
}
CUresult error_text(CUresult, const char** text) { return *text = "no device", CUDA_SUCCESS; }

cuda::Driver driver() {
  cuda::Driver table;
  table.cuInit = init;
  table.cuDeviceGetCount = count;
  table.cuDeviceGet = get;
  table.cuDeviceTotalMem = total;
  table.cuDeviceGetName = name;
  table.cuDeviceGetPCIBusId = bus_id;
  table.cuDeviceGetAttribute = attribute;
  table.cuDeviceCanAccessPeer = access;
  table.cuDeviceGetP2PAttribute = p2p;
  table.cuGetErrorName = error_name;
  table.cuGetErrorString = error_text;
  return table;
}

TEST(Discover, FallsBackToTheDriverAndToAssumptions) {
  const auto found = discover(driver());
  ASSERT_TRUE(found.ok()) << found.status().message();
  const Server& server = found.value();
  ASSERT_EQ(server.gpus.size(), 2u);
  EXPECT_EQ(server.gpus[1].name, "NVIDIA Test");
  EXPECT_EQ(server.gpus[1].pci_bus_id, "ffff:e1:00.0");
  EXPECT_EQ(server.gpus[1].sm_count.value, 78);
  EXPECT_EQ(server.gpus[1].memory_bytes.value, uint64_t{96} << 30);
  EXPECT_EQ(server.numa_node_count(), 2);  // the driver's nodes 0 and 3
  EXPECT_EQ(server.gpus[1].numa_node, 1);
  EXPECT_TRUE(server.has_nvlink(0, 1));
  for (const Link& link : server.links) EXPECT_FALSE(link.forward_gbps.source.empty());
}

TEST(Discover, PeersWithoutAtomicsHaveNoNvlink) {
  g_atomics = 0;
  const auto found = discover(driver());
  ASSERT_TRUE(found.ok());
  EXPECT_FALSE(found.value().has_nvlink(0, 1));
}

TEST(Discover, NoGpuIsAnErrorWithARemedy) {
  g_count = 0;
  EXPECT_EQ(discover(driver()).status().message().find("the CUDA driver shows no GPU. Check"), 0u);
  g_init = CUDA_ERROR_NO_DEVICE;
  EXPECT_EQ(discover(driver()).status().message().find(
                "starting the CUDA driver: CUDA_ERROR_NO_DEVICE (no device). Check nvidia-smi"),
            0u);
}

}  // namespace
}  // namespace braid::topology
