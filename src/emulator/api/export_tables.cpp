#include "emulator/api/export_tables.h"

#include <atomic>
#include <cstring>

#include "emulator/api/device.h"
#include "emulator/api/entry.h"
#include "emulator/errors.h"

namespace braid::emulator {
namespace {

int gpu_count() { return world_of_process()->device_count(); }

CUuuid uuid_of(int gpu) {
  const World& world = *world_of_process();
  return gpu_uuid(world.server, world.visible[static_cast<size_t>(gpu)]);
}

constexpr InterfaceTable kInterface{sizeof(InterfaceTable)};
constexpr SelfCheckTable kSelfCheck{sizeof(SelfCheckTable), gpu_count, uuid_of};

const void* find_table(const CUuuid& id) {
  if (world_of_process() == nullptr) return nullptr;
  if (std::memcmp(id.bytes, kInterfaceId, sizeof id.bytes) == 0) return &kInterface;
  if (std::memcmp(id.bytes, kSelfCheckId, sizeof id.bytes) == 0) return &kSelfCheck;
  return nullptr;
}

}  // namespace
}  // namespace braid::emulator

using namespace braid::emulator;

extern "C" CUresult CUDAAPI cuGetExportTable(const void** table, const CUuuid* id) {
  static std::atomic<bool> said{false};
  if (table == nullptr || id == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *table = find_table(*id);
  if (*table != nullptr) return CUDA_SUCCESS;
  if (!said.exchange(true))
    say("cuGetExportTable is not emulated; CUDA's runtime library needs real GPUs");
  return CUDA_ERROR_NOT_SUPPORTED;
}
