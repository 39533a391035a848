// What the operations of `meanwhile` are made of.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "gpu/programs/driver_entry.h"
#include "gpu/programs/runtime_program.h"

namespace program {

inline void must(CUresult result, const char* call, int line) {
  if (result == CUDA_SUCCESS) return;
  fail("line " + std::to_string(line) + ": " + call + ": driver error " +
       std::to_string(static_cast<int>(result)));
}

}  // namespace program

namespace meanwhile {

using namespace program;

constexpr size_t kScratchBytes = size_t{32} << 20;

/// What an operation may use. All of it was made before the copies began.
struct Scene {
  int gpu;                ///< where the operation happens: its context is current
  int other_gpu;          ///< -1: the machine has one GPU
  cudaStream_t own;       ///< the operation's, of `gpu`
  cudaStream_t second;    ///< another one
  cudaStream_t side;      ///< where the copies are, of GPU 0
  cudaEvent_t halfway;    ///< behind half of the copies
  unsigned char* pinned;  ///< kScratchBytes each, from here on
  unsigned char* pageable;
  unsigned char* device;  ///< of `gpu`
  unsigned char* there;   ///< of `other_gpu`
  int turn;               ///< 0, 1, ...: how often this operation has run on this GPU
};

/// One operation, prepared. `now` is what happens while copies are under way, and what is timed.
struct Action {
  std::function<void()> now;
  std::function<void()> afterwards = [] {};  ///< the copies have ended: checks and clean-up
};

struct Operation {
  const char* name;
  bool is_for_relay;  ///< whether it is done on the GPU that relays, too
  std::function<Action(const Scene&)> prepare;
};

/// What an operation has to say beside "ok": that this machine cannot do it, natively either.
inline std::string remark;

inline bool is_possible(cudaError_t result) {
  if (result != cudaSuccess) {
    remark = cudaGetErrorName(result);
    (void)cudaGetLastError();
  }
  return result == cudaSuccess;
}

inline bool is_possible(CUresult result) {
  if (result != CUDA_SUCCESS) remark = "driver error " + std::to_string(static_cast<int>(result));
  return result == CUDA_SUCCESS;
}

/// A value that `now` makes and `afterwards` ends.
template <typename Value>
std::shared_ptr<Value> shared(Value value = {}) {
  return std::make_shared<Value>(value);
}

/// A kernel that was loaded on every GPU before anything began: adds 1 to `words`.
void launch_loaded(unsigned* words, cudaStream_t stream);

inline void expect_word(const unsigned char* device, unsigned wanted, const char* what) {
  unsigned found = 0;
  MUST(cudaMemcpy(&found, device, sizeof found, cudaMemcpyDeviceToHost));
  require(found == wanted, std::string(what) + ": a kernel's result is wrong");
}

}  // namespace meanwhile
