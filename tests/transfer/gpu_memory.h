// Memory of a GPU with a pattern, and an engine that may move it.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "braid/transfer.h"
#include "support/server.h"
#include "transfer/owner.h"
#include "transfer/pattern.h"

namespace braid::transfer::test {

using braid::test::DeviceBuffer;
using braid::test::HostBuffer;

/// On the emulated server, or on the machine's GPUs.
class GpuTest : public braid::test::ServerTest {
 protected:
  GpuTest() { gpus_needed = 1; }

  /// The n-th GPU, or the last one where there are fewer.
  int gpu(int number) const { return std::min(number, gpus() - 1); }

  void put(CUdeviceptr to, std::span<const std::byte> bytes) const {
    MUST(driver(), cuMemcpyHtoD(to, bytes.data(), bytes.size()));
  }
  void put_pattern(CUdeviceptr to, size_t size_bytes, uint64_t seed, uint64_t place = 0) const {
    std::vector<std::byte> bytes(size_bytes);
    fill(bytes, seed, place);
    put(to, bytes);
  }
  std::vector<std::byte> get(CUdeviceptr from, size_t size_bytes) const {
    std::vector<std::byte> bytes(size_bytes);
    MUST(driver(), cuMemcpyDtoH(bytes.data(), from, size_bytes));
    return bytes;
  }
  /// The first place that is wrong.
  std::optional<size_t> wrong_on_gpu(CUdeviceptr from, size_t size_bytes, uint64_t seed,
                                     uint64_t place = 0) const {
    return wrong_at(get(from, size_bytes), seed, place);
  }

  static Transfer::Options gpu_options(std::vector<std::string> providers = {}) {
    Transfer::Options options;
    options.gpu_memory = true;
    options.providers = std::move(providers);
    return options;
  }
  static void* at(CUdeviceptr address) { return reinterpret_cast<void*>(address); }
};

inline constexpr std::chrono::microseconds kLimit = 30s;

/// Each request's cause, once all have ended.
inline std::vector<Transfer::Cause> end(Transfer& transfer, Transfer::Batch batch) {
  EXPECT_TRUE(transfer.wait(batch, kLimit).value()) << "it does not end";
  std::vector<Transfer::Cause> causes;
  const std::vector<Transfer::Outcome> outcomes = transfer.outcomes(batch).value();
  for (const Transfer::Outcome& each : outcomes) causes.push_back(each.cause);
  EXPECT_TRUE(transfer.forget(batch).ok());
  return causes;
}
inline std::vector<Transfer::Cause> run(Transfer& transfer,
                                        const std::vector<Transfer::Request>& requests) {
  return end(transfer, transfer.submit(requests).value());
}

}  // namespace braid::transfer::test
