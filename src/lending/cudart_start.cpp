#include "preload/cudart_start.h"

#include <cstring>

#include "base/export_tables.h"
#include "preload/cudart.h"
#include "preload/entries.h"
#include "preload/lending.h"
#include "preload/module.h"
#include "preload/runtime.h"

namespace braid::preload {
namespace {

bool is(const CUuuid& id, const TableId& known) {
  return std::memcmp(id.bytes, known.data(), known.size()) == 0;
}

}  // namespace

thread_local bool CudartStart::is_under_way_ = false;

void CudartStart::table_requested(const CUuuid& id) {
  if (is(id, kInterfaceTable)) is_under_way_ = true;
  if (is(id, kSelfCheckTable)) is_under_way_ = false;
}

const link_map* static_cudart_at(const void* address) noexcept {
  const link_map* const module = module_of(address);
  if (module == nullptr || exports_cudart(*module)) return nullptr;
  // Only the runtime asks for its interface, so only a module that holds it knows the table's name.
  return has_constant(*module, kInterfaceTable) ? module : nullptr;
}

}  // namespace braid::preload

using namespace braid::preload;

CUresult cuGetExportTable(const void** table, const CUuuid* id) {
  auto* native = real<decltype(cuGetExportTable)>(k_cuGetExportTable);
  if (native == nullptr) return CUDA_ERROR_NOT_INITIALIZED;
  if (id != nullptr && may_lend()) CudartStart::table_requested(*id);
  return native(table, id);
}
