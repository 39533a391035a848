#include <cstring>
#include <vector>

#include "device.h"

namespace kv_push {
namespace {

class HostDevice final : public Device {
 public:
  std::byte* allocate(size_t size_bytes) override {
    return memory_.emplace_back(new std::byte[size_bytes]()).get();
  }
  void write(std::byte* to, const Bytes& bytes) override {
    std::memcpy(to, bytes.data(), bytes.size());
  }
  void signal(uint64_t* word, uint64_t value) override {
    __atomic_store_n(word, value, __ATOMIC_RELEASE);
  }
  Bytes read(const std::byte* from, size_t size_bytes) override {
    return {from, from + size_bytes};
  }
  braid::FabricWatcher::Memory word_memory() const override {
    return braid::FabricWatcher::Memory::kHost;
  }

 private:
  std::vector<std::unique_ptr<std::byte[]>> memory_;
};

}  // namespace

std::unique_ptr<Device> open_host() { return std::make_unique<HostDevice>(); }

}  // namespace kv_push
