// A server for tests: the machine's own GPUs where BRAID_TEST_DRIVER names their driver
// (scripts/gpu-test does that), otherwise the emulated one. The same tests run on both.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "cuda/driver.h"
#include "multipath/engine.h"

namespace braid::test {

/// A call that must succeed; throws with the call's name and the driver's words.
void must(const cuda::Driver& driver, CUresult result, const char* call);
#define MUST(driver, call) ::braid::test::must(driver, (driver).call, #call)

/// The server's driver, opened and initialised once a process. It has made no context.
const Result<cuda::Driver>& server_driver();
bool server_is_emulated();

/// Pinned memory, or memory of ours that is registered with `flags`.
class HostBuffer {
 public:
  HostBuffer(const cuda::Driver& driver, uint64_t size_bytes);
  static std::unique_ptr<HostBuffer> registered(const cuda::Driver& driver, uint64_t size_bytes,
                                                unsigned flags);
  ~HostBuffer();
  HostBuffer(const HostBuffer&) = delete;
  HostBuffer& operator=(const HostBuffer&) = delete;

  uint8_t* data() { return data_; }
  uint64_t size() const { return size_bytes_; }
  void fill_random(uint64_t seed);

 private:
  HostBuffer(const cuda::Driver& driver, uint64_t size_bytes, unsigned flags);
  const cuda::Driver& driver_;
  uint8_t* data_ = nullptr;
  uint64_t size_bytes_;
  bool registered_ = false;
};

class DeviceBuffer {
 public:
  DeviceBuffer(const cuda::Driver& driver, uint64_t size_bytes);
  ~DeviceBuffer();
  DeviceBuffer(const DeviceBuffer&) = delete;
  DeviceBuffer& operator=(const DeviceBuffer&) = delete;

  CUdeviceptr at(uint64_t offset = 0) const { return address_ + offset; }

 private:
  const cuda::Driver& driver_;
  CUcontext context_ = nullptr;
  CUdeviceptr address_ = 0;
};

/// Opens the driver once a process, retains every GPU's primary context and makes GPU 0's current.
/// Skips the test, saying why, when there is no server or it has fewer than `gpus_needed` GPUs.
class ServerTest : public ::testing::Test {
 protected:
  void SetUp() override;
  ~ServerTest() override;

  const cuda::Driver& driver() const { return *driver_; }
  int gpus() const { return static_cast<int>(contexts_.size()); }
  CUcontext context(int gpu) const { return contexts_[gpu]; }
  void use_gpu(int gpu) const { MUST(driver(), cuCtxSetCurrent(contexts_[gpu])); }
  bool is_emulated() const { return server_is_emulated(); }

  /// A driver function that braid itself does not use, by its exported name.
  static void* symbol(const char* name);

  /// With a threshold of one byte unless told otherwise, so that every size goes through braid.
  std::unique_ptr<multipath::Engine> open_engine(Options options = every_size());
  static Options every_size();

  /// Before SetUp: the shipped profile that this process emulates, if none has been named yet. The
  /// first test of a process decides; `SetUp` of another one must ask `gpus()`.
  static void choose_profile(const std::string& name);

  /// Destroyed when the test ends: the driver maps streams onto few hardware queues, and streams
  /// that share one wait for each other, with braid or without.
  CUstream new_stream(unsigned flags = CU_STREAM_NON_BLOCKING);
  void synchronize(CUstream stream) const { MUST(driver(), cuStreamSynchronize(stream)); }
  double elapsed_us(CUevent begin, CUevent end) const;
  CUevent new_event() const;

  int gpus_needed = 2;

 private:
  const cuda::Driver* driver_ = nullptr;
  std::vector<CUcontext> contexts_;
  std::mutex streams_lock_;
  std::vector<CUstream> streams_;
};

}  // namespace braid::test
