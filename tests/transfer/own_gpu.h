// An engine that moves GPU memory within its process.
#pragma once

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "transfer/gpu_memory.h"

namespace braid::transfer::test {

namespace fs = std::filesystem;
using Cause = Transfer::Cause;
using Operation = Transfer::Operation;
inline constexpr size_t kBytes = 5 << 20;

/// An engine with host memory, memory of two GPUs and a folder, and its own segment.
class TransferOwnGpu : public GpuTest {
 protected:
  void SetUp() override {
    if (!faults().empty()) setenv("BRAID_FAULTS", faults().c_str(), 1);
    GpuTest::SetUp();
    if (IsSkipped()) return;
    fs::create_directories(root_);
    host_ = std::make_unique<HostBuffer>(driver(), kBytes);
    transfer_.emplace(Transfer::open(gpu_options()).value());
    for (int i = 0; i < 2; ++i) {
      use_gpu(gpu(i));
      memory_[i] = std::make_unique<DeviceBuffer>(driver(), kBytes);
      buffers_[i] = transfer_->register_memory(at(memory_[i]->at()), kBytes, {true, true}).value();
    }
    use_gpu(0);
    ASSERT_TRUE(transfer_->register_memory(host_->data(), kBytes, {true, true}).ok());
    ASSERT_TRUE(transfer_->export_folder("files", root_.string(), {true, true}).ok());
    own_ = transfer_->open_segment(transfer_->name().value(), kLimit).value();
  }
  ~TransferOwnGpu() override { fs::remove_all(root_); }
  virtual std::string faults() const { return {}; }

  std::span<std::byte> host() { return {reinterpret_cast<std::byte*>(host_->data()), kBytes}; }
  CUdeviceptr on(int number) const { return memory_[number]->at(); }
  Transfer::Request request(Operation operation, void* local, uint64_t there, size_t size_bytes) {
    return {own_, operation, local, there, size_bytes};
  }
  uint64_t host_address(size_t offset = 0) { return reinterpret_cast<uint64_t>(&host()[offset]); }
  std::vector<Cause> run(const std::vector<Transfer::Request>& requests) {
    return test::run(*transfer_, requests);
  }
  std::vector<std::byte> read_file(const std::string& name) const {
    std::ifstream file(root_ / name, std::ios::binary);
    const std::vector<char> text{std::istreambuf_iterator<char>(file), {}};
    std::vector<std::byte> bytes(text.size());
    std::transform(text.begin(), text.end(), bytes.begin(),
                   [](char letter) { return static_cast<std::byte>(letter); });
    return bytes;
  }
  Transfer::Segment open_file(const std::string& name) {
    return transfer_->open_file(own_, "files/" + name, {true, true}, kLimit).value();
  }

  const fs::path root_ = fs::path(testing::TempDir()) / ("braid-gpu-" + std::to_string(getpid()));
  std::unique_ptr<HostBuffer> host_;
  std::unique_ptr<DeviceBuffer> memory_[2];
  Transfer::Buffer buffers_[2]{};
  std::optional<Transfer> transfer_;  // ends before its memory
  Transfer::Segment own_{};
};

}  // namespace braid::transfer::test
