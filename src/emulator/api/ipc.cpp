// Legacy IPC. Each process has a server of its own, so that a handle can be made but not opened:
// the process that made it may not, as on hardware, and others have no way to its memory.
#include <unistd.h>

#include <cstring>

#include "emulator/api/entry.h"

namespace braid::emulator {
namespace {

// What a CUipcMemHandle's bytes hold.
struct MemoryHandle {
  uint64_t magic;
  int64_t process;
  uint64_t address;
  uint64_t buffer_id;
};
constexpr uint64_t kMagic = 0x6469617262637069;  // "ipcbraid"
static_assert(sizeof(MemoryHandle) <= sizeof(CUipcMemHandle));

// Only cuMemAlloc's memory: not mappings, pools, managed or host memory.
CUresult get_handle(Call& call, CUipcMemHandle* out, CUdeviceptr address) {
  if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
  BRAID_TRY(current_context(call).status());
  Allocation* allocation = call.world.memory.find(address);
  if (allocation == nullptr || allocation->kind != Allocation::Kind::kDevice)
    return CUDA_ERROR_INVALID_VALUE;
  allocation->exported = true;
  const MemoryHandle handle{kMagic, getpid(), allocation->address, allocation->buffer_id};
  *out = {};
  std::memcpy(out, &handle, sizeof(handle));
  return CUDA_SUCCESS;
}

CUresult open_handle(Call& call, CUdeviceptr* out, CUipcMemHandle bytes, unsigned flags) {
  if (out == nullptr || flags != CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS)
    return CUDA_ERROR_INVALID_VALUE;
  BRAID_TRY(current_context(call).status());
  MemoryHandle handle{};
  std::memcpy(&handle, &bytes, sizeof(handle));
  if (handle.magic != kMagic) return CUDA_ERROR_INVALID_VALUE;
  if (handle.process != getpid()) return CUDA_ERROR_MAP_FAILED;
  const Allocation* allocation = call.world.memory.find(handle.address);
  const bool known =
      allocation != nullptr && allocation->exported && allocation->buffer_id == handle.buffer_id;
  return known ? CUDA_ERROR_INVALID_CONTEXT : CUDA_ERROR_INVALID_HANDLE;
}

// Nothing can have been opened.
CUresult close_handle(Call& call, CUdeviceptr) {
  BRAID_TRY(current_context(call).status());
  return CUDA_ERROR_INVALID_VALUE;
}

}  // namespace

BRAID_ENTRY(cuIpcGetMemHandle, 2, get_handle)
BRAID_ENTRY_V2(cuIpcOpenMemHandle, 3, open_handle)
BRAID_ENTRY(cuIpcCloseMemHandle, 1, close_handle)

}  // namespace braid::emulator
