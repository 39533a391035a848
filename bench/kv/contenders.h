// What is held against each other: a cache that rotates over some copier, and bare batches of the
// same blocks by the same copier. Both verify their bytes.
#pragma once

#include <cstdint>
#include <memory>
#include <random>
#include <vector>

#include "cuda/driver.h"
#include "kv/rotation_engine.h"

namespace braid::bench {

enum class Moves { kDown, kUp, kBoth };
const char* moves_name(Moves moves);

/// What one turn took.
struct Turn {
  double seconds = 0;    ///< from the call until the last byte has landed
  double submit_us = 0;  ///< the call itself
  uint64_t moved_bytes = 0;
  double gbps() const { return static_cast<double>(moved_bytes) / seconds / 1e9; }
};

/// The GPU that is measured, with a stream for the model's steps.
struct Gpu {
  const cuda::Driver& driver;
  CUcontext context = nullptr;
  CUstream compute = nullptr;
};

/// Exits with the driver's words.
void must(const cuda::Driver& driver, CUresult result, const char* what);

class DeviceMemory {
 public:
  DeviceMemory(const Gpu& gpu, uint64_t size_bytes);
  ~DeviceMemory();
  CUdeviceptr at(uint64_t offset_bytes = 0) const { return address_ + offset_bytes; }

 private:
  const cuda::Driver& driver_;
  CUdeviceptr address_ = 0;
};

class Contender {
 public:
  virtual ~Contender() = default;
  virtual Turn turn(Moves moves) = 0;
  /// Every byte is where it belongs.
  virtual bool verify() = 0;
  /// What the copier of one that rotates has put under way.
  virtual kv::Carried carried() const { return {}; }
};

/// `blocks` blocks are on the GPU and as many on the host; a turn moves one group, or exchanges
/// both, by one plan.
class RotatingCache final : public Contender {
 public:
  RotatingCache(const Gpu& gpu, uint64_t block_bytes, uint32_t blocks,
                std::unique_ptr<kv::Copier> copier);
  Turn turn(Moves moves) override;
  bool verify() override;
  kv::Carried carried() const override { return rotation_->carried(); }

 private:
  Turn submit(const kv::Plan& plan);
  void must_submit(const kv::Plan& plan);
  void forget_host(const std::vector<kv::BlockId>& ids);
  void shuffle();

  std::mt19937 random_;
  const Gpu& gpu_;
  const uint64_t block_bytes_;
  DeviceMemory memory_;
  std::unique_ptr<kv::RotationEngine> rotation_;
  std::vector<kv::BlockId> every_;    // in the order of their contents
  std::vector<kv::BlockId> on_gpu_;   // sealed: the host has no copy
  std::vector<kv::BlockId> on_host_;  // host only
};

/// The driver's copies, one call for each.
class OneByOneCopier final : public kv::Copier {
 public:
  explicit OneByOneCopier(const cuda::Driver& driver) : driver_(driver) {}
  Status copy(std::span<const library::Copy> copies, CUstream stream, kv::Urgency urgency) override;

 private:
  const cuda::Driver& driver_;
  library::NativeArrays arrays_;
};

/// Whether the two directions of a turn run at the same time.
enum class Duplex : bool { kSerial, kFull };

/// The same blocks, and nothing but their batches.
class BareBatches final : public Contender {
 public:
  BareBatches(const Gpu& gpu, uint64_t block_bytes, uint32_t blocks,
              std::unique_ptr<kv::Copier> copier, Duplex duplex = Duplex::kFull);
  ~BareBatches() override;
  Turn turn(Moves moves) override;
  bool verify() override;

 private:
  std::vector<library::Copy> list(bool is_down) const;

  const Gpu& gpu_;
  const uint64_t block_bytes_;
  const Duplex duplex_;
  const std::vector<uint32_t> order_;  // of the blocks in each batch
  DeviceMemory memory_;                // the group that goes down, then the one that comes up
  std::unique_ptr<kv::HostPool> host_;
  std::unique_ptr<kv::Copier> copier_;
  CUstream down_ = nullptr;
  CUstream up_ = nullptr;
};

}  // namespace braid::bench
