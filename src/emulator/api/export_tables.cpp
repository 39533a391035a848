// The driver tables by which CUDA's runtime library starts, as far as a double of it needs them
// that starts as the real one does (tests/lending/clients/cudart_double.cpp). The real one needs
// more tables, and more in the first; it is refused the next that it asks for.
#include "base/export_tables.h"

#include <atomic>
#include <cstring>

#include "emulator/api/entry.h"
#include "emulator/errors.h"
#include "emulator/model/gpu_uuid.h"

namespace braid::emulator {
namespace {

int gpu_count() { return world_of_process()->device_count(); }

void copy_uuid(int gpu, char* uuid) {
  const World& world = *world_of_process();
  const CUuuid own = gpu_uuid(world.server, world.visible[static_cast<size_t>(gpu)]);
  std::memcpy(uuid, own.bytes, sizeof own.bytes);
}

constexpr size_t kEmptyInterface = sizeof kEmptyInterface;  // a table begins with its size
constexpr EmulatedSelfCheck kSelfCheck{sizeof kSelfCheck, gpu_count, copy_uuid};

const void* find_table(const CUuuid& id) {
  const auto is = [&](const TableId& known) {
    return std::memcmp(id.bytes, known.data(), known.size()) == 0;
  };
  if (world_of_process() == nullptr) return nullptr;
  if (is(kInterfaceTable)) return &kEmptyInterface;
  return is(kSelfCheckTable) ? &kSelfCheck : nullptr;
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
