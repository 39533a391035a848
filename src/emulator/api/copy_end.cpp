#include "emulator/api/copy_end.h"

#include "emulator/model/host_pages.h"

namespace braid::emulator {

namespace {

// Null when there is none. Naming plain memory needs the lock of its context.
const Allocation* find_named(Call& call, uint64_t address) {
  ContextPtr owner;
  const Allocation* allocation = nullptr;
  do {
    allocation = call.world.memory.find(address);
    const bool plain = allocation != nullptr && allocation->kind == Allocation::Kind::kDevice;
    owner = plain ? owner_of(call, *allocation) : nullptr;
  } while (owner != nullptr && call.world.wait_for_lock(call.lock, *owner));
  return allocation;
}

}  // namespace

CUresult find_end(Call& call, uint64_t address, uint64_t size_bytes, EndKind kind, CopyEnd& end) {
  const Allocation* allocation = find_named(call, address);
  if (allocation == nullptr) {
    // Pageable memory lies on node 0. Whether it is mapped at all is looked at here.
    void* at = reinterpret_cast<void*>(address);
    if (kind == EndKind::kKnown || !is_readable(at, size_bytes)) return CUDA_ERROR_INVALID_VALUE;
    end = {};
    end.address = address;
    end.bytes = static_cast<std::byte*>(at);
    return CUDA_SUCCESS;
  }
  // The call has freed it, though the stream has not: a copy that is enqueued now comes too late
  // (seen on 4xH200, as a copy of braid's that failed).
  if (allocation->freeing) return CUDA_ERROR_INVALID_VALUE;
  if (kind == EndKind::kHost && !cpu_may(*allocation)) return CUDA_ERROR_INVALID_VALUE;
  // Mappings may be crossed by one copy, registrations may not (seen on H200, driver 580).
  const bool may_cross = allocation->kind != Allocation::Kind::kHostRegistered;
  if (!allocation->holds(address, size_bytes) &&
      !(may_cross && call.world.memory.find(address, size_bytes) != nullptr))
    return CUDA_ERROR_INVALID_VALUE;
  end.address = address;
  end.bytes = allocation->bytes_at(address);
  end.place = allocation->place;
  end.context = allocation->context;
  end.device = allocation->device;
  end.buffer_id = allocation->buffer_id;
  end.sync_memops = allocation->sync_memops;
  return CUDA_SUCCESS;
}

namespace {

// A sum of products that remembers having left 64 bits: programs may pass any number.
struct Checked {
  uint64_t value = 0;
  bool valid = true;

  friend Checked operator+(Checked a, Checked b) {
    Checked sum;
    const bool overflows = __builtin_add_overflow(a.value, b.value, &sum.value);
    sum.valid = a.valid && b.valid && !overflows;
    return sum;
  }
  friend Checked operator*(Checked a, Checked b) {
    Checked product;
    const bool overflows = __builtin_mul_overflow(a.value, b.value, &product.value);
    product.valid = a.valid && b.valid && !overflows;
    return product;
  }
};

}  // namespace

CUresult find_rows(Call& call, uint64_t base, const Layout& layout, const Extent& extent,
                   EndKind kind, CopyEnd& end) {
  const Checked x{layout.x_bytes};
  const Checked y{layout.y};
  const Checked least_row = x + Checked{extent.width_bytes};
  const Checked least_rows = y + Checked{extent.height};
  const Checked row = layout.row_bytes != 0 ? Checked{layout.row_bytes} : least_row;
  const Checked rows = layout.layer_rows != 0 ? Checked{layout.layer_rows} : least_rows;
  if (!least_row.valid || row.value < least_row.value) return CUDA_ERROR_INVALID_VALUE;
  if (!least_rows.valid || rows.value < least_rows.value) return CUDA_ERROR_INVALID_VALUE;
  const Checked layer = rows * row;
  const Checked address = Checked{base} + (Checked{layout.z} * rows + y) * row + x;
  const Checked span = Checked{extent.depth - 1} * layer + Checked{extent.height - 1} * row +
                       Checked{extent.width_bytes};
  if (!address.valid || !span.valid || !layer.valid) return CUDA_ERROR_INVALID_VALUE;
  BRAID_TRY(find_end(call, address.value, span.value, kind, end));
  end.row_bytes = row.value;
  end.layer_bytes = layer.value;
  return CUDA_SUCCESS;
}

namespace {

CUresult find_device(Call& call, CUcontext handle, int& device) {
  BRAID_LET(context, find_context(call, handle));
  device = context->device;
  return context->error;
}

}  // namespace

CUresult find_peers(Call& call, CUcontext destination, CUcontext source, Copy& copy) {
  BRAID_TRY(find_device(call, destination, copy.destination.through));
  return find_device(call, source, copy.source.through);
}

}  // namespace braid::emulator
