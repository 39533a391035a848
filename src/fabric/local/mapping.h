// Memory that processes of one server share: the offer of it, and the writer's mapping of GPU
// memory. The owner's side is in export.h.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>

#include "cuda/driver.h"
#include "fabric/gpu/lane.h"
#include "fabric/local/socket.h"

namespace braid::fabric::local {

/// Sent as its bytes between processes of one host and one version.
struct Offer {
  enum Kind : uint64_t { kRefused, kMapping, kIpc, kSameProcess, kPages };
  uint64_t key = 0;
  uint64_t kind = kRefused;
  uint64_t slot = 0;          ///< of the board
  uint64_t size_bytes = 0;    ///< of the region
  uint64_t offset_bytes = 0;  ///< of the region in what is shared
  uint64_t shared_bytes = 0;  ///< kMapping, kPages
  uint64_t address = 0;       ///< kSameProcess
  CUuuid gpu{};               ///< the GPU of GPU memory
  CUipcMemHandle handle{};    ///< kIpc
};
static_assert(sizeof(Offer) <= Socket::kPacketBytesMax);

/// The writer's side: maps the offered memory for each lane that copies there. The lanes' threads
/// do the work.
class Mapping : public std::enable_shared_from_this<Mapping> {
 public:
  Mapping(const cuda::Driver& driver, const Offer& offer, File file)
      : driver_(driver), offer_(offer), file_(std::move(file)) {}

  enum class State : uint8_t { kComing, kReady, kRefused };
  /// The first call begins it. The caller keeps the lane until the mapping has been let go.
  State prepare(gpu::Lane& lane);
  /// The address of the region's first byte, for a lane that is ready.
  CUdeviceptr address_for(const gpu::Lane& lane) const;
  /// The lane has no copies there any more, and the caller need not keep it. `prepare` maps for it
  /// again.
  void leave(gpu::Lane& lane);
  /// To be called once nobody copies there any more. The first call begins it; true once the memory
  /// is mapped nowhere.
  bool let_go();

 private:
  struct View {
    gpu::Lane* lane = nullptr;
    State state = State::kComing;
    CUdeviceptr address = 0;  // of the region
    CUdeviceptr opened = 0;   // kIpc
    bool is_closing = false;
  };
  void close_by(View& view);
  void open(CUresult context, gpu::Lane& lane);
  CUresult open(View& view, int gpu);
  bool lies_within(CUdeviceptr allocation, CUdeviceptr address) const;
  CUresult map();
  CUresult allow(int gpu);
  void close(const gpu::Lane* lane);
  void unmap();

  const cuda::Driver& driver_;
  const Offer offer_;
  const File file_;
  std::mutex opening_;  // for the lanes' threads, which may wait in the driver
  CUmemGenericAllocationHandle handle_ = 0;
  CUdeviceptr reserved_ = 0;
  bool is_mapped_ = false;
  mutable std::mutex mutex_;                // for all threads
  std::map<const gpu::Lane*, View> views_;  // under it; a lane closes what it has opened
  bool is_letting_go_ = false;
  bool is_gone_ = false;
};

/// The GPU's CUDA ordinal in this process; -1: it is not visible here.
int find_gpu(const cuda::Driver& driver, const CUuuid& gpu);

}  // namespace braid::fabric::local
