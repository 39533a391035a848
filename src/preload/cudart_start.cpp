#include "preload/cudart_start.h"

#include <cstring>

#include "preload/cudart.h"
#include "preload/entries.h"
#include "preload/lending.h"
#include "preload/module.h"
#include "preload/runtime.h"

namespace braid::preload {
namespace {

// The same in every runtime from 11.8 to 13.0, shared and static.
constexpr unsigned char kInterface[] = {0x6b, 0xd5, 0xfb, 0x6c, 0x5b, 0xf4, 0xe7, 0x4a,
                                        0x89, 0x87, 0xd9, 0x39, 0x12, 0xfd, 0x9d, 0xf9};
constexpr unsigned char kSelfCheck[] = {0xd4, 0x08, 0x20, 0x55, 0xbd, 0xe6, 0x70, 0x4b,
                                        0x8d, 0x34, 0xba, 0x12, 0x3c, 0x66, 0xe1, 0xf2};

bool same(const CUuuid& id, const unsigned char (&bytes)[sizeof(CUuuid)]) {
  return std::memcmp(id.bytes, bytes, sizeof bytes) == 0;
}

}  // namespace

thread_local bool CudartStart::is_under_way_ = false;

void CudartStart::table_requested(const CUuuid& id) {
  if (same(id, kInterface)) is_under_way_ = true;
  if (same(id, kSelfCheck)) is_under_way_ = false;
}

const link_map* static_cudart_at(const void* address) noexcept {
  const link_map* const module = module_of(address);
  if (module == nullptr || exports_cudart(*module)) return nullptr;
  // Only the runtime asks for its interface, so only a module that holds it knows the table's name.
  return has_constant(*module, kInterface) ? module : nullptr;
}

}  // namespace braid::preload

using namespace braid::preload;

CUresult cuGetExportTable(const void** table, const CUuuid* id) {
  auto* native = real<decltype(cuGetExportTable)>(k_cuGetExportTable);
  if (native == nullptr) return CUDA_ERROR_NOT_INITIALIZED;
  if (id != nullptr && may_lend()) CudartStart::table_requested(*id);
  return native(table, id);
}
