// Memory of a GPU, for tests: of cuMemAlloc, and mapped.
#pragma once

#include <memory>
#include <vector>

#include "fabric/wires.h"
#include "support/server.h"

namespace braid::fabric::test {

struct Gpu {
  const cuda::Driver& driver;
  int number;
  CUcontext context;
};

class DeviceMemory : public Memory {
 public:
  MutableBytes bytes() final { return {reinterpret_cast<std::byte*>(address()), size_bytes_}; }
  std::vector<std::byte> get() const final { return get(size_bytes_); }
  std::byte first() const final { return get(1).front(); }
  void put(const std::vector<std::byte>& bytes) final {
    use_gpu();
    MUST(gpu_.driver, cuMemcpyHtoD(address(), bytes.data(), bytes.size()));
    MUST(gpu_.driver, cuCtxSynchronize());
  }

 protected:
  DeviceMemory(const Gpu& gpu, size_t size_bytes) : gpu_(gpu), size_bytes_(size_bytes) {
    use_gpu();
  }
  virtual CUdeviceptr address() const = 0;
  std::vector<std::byte> get(size_t size_bytes) const {
    use_gpu();
    std::vector<std::byte> bytes(size_bytes);
    MUST(gpu_.driver, cuMemcpyDtoH(bytes.data(), address(), size_bytes));
    return bytes;
  }
  void use_gpu() const { MUST(gpu_.driver, cuCtxSetCurrent(gpu_.context)); }
  void clear() {
    MUST(gpu_.driver, cuMemsetD8(address(), 0, size_bytes_));
    MUST(gpu_.driver, cuCtxSynchronize());
  }

  const Gpu gpu_;
  const size_t size_bytes_;
};

class GpuBytes final : public DeviceMemory {
 public:
  GpuBytes(const Gpu& gpu, size_t size_bytes)
      : DeviceMemory(gpu, size_bytes), buffer_(gpu.driver, size_bytes) {
    clear();
  }

 private:
  CUdeviceptr address() const override { return buffer_.at(); }

  const braid::test::DeviceBuffer buffer_;
};

/// Mapped, and made to be shared, or not.
class SharedBytes final : public DeviceMemory {
 public:
  SharedBytes(const Gpu& gpu, size_t size_bytes, bool is_shared = true)
      : DeviceMemory(gpu, size_bytes) {
    constexpr size_t kGranuleBytes = 2 << 20;
    mapped_bytes_ = (size_bytes + kGranuleBytes - 1) / kGranuleBytes * kGranuleBytes;
    CUmemAllocationProp kind{};
    kind.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    kind.location = {CU_MEM_LOCATION_TYPE_DEVICE, gpu.number};
    if (is_shared) kind.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
    const CUmemAccessDesc access{kind.location, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    CUmemGenericAllocationHandle handle = 0;
    MUST(gpu.driver, cuMemCreate(&handle, mapped_bytes_, &kind, 0));
    MUST(gpu.driver, cuMemAddressReserve(&address_, mapped_bytes_, 0, 0, 0));
    MUST(gpu.driver, cuMemMap(address_, mapped_bytes_, 0, handle, 0));
    MUST(gpu.driver, cuMemSetAccess(address_, mapped_bytes_, &access, 1));
    MUST(gpu.driver, cuMemRelease(handle));
    clear();
  }
  ~SharedBytes() override {
    MUST(gpu_.driver, cuMemUnmap(address_, mapped_bytes_));
    MUST(gpu_.driver, cuMemAddressFree(address_, mapped_bytes_));
  }

 private:
  CUdeviceptr address() const override { return address_; }

  size_t mapped_bytes_ = 0;
  CUdeviceptr address_ = 0;
};

}  // namespace braid::fabric::test
