#include "multipath/waits.h"

#include <cstdio>

#include "multipath/access.h"
#include "multipath/transfer.h"

namespace braid::multipath {
namespace {

std::string stream_name(CUstream stream) {
  if (stream == CU_STREAM_LEGACY) return "the legacy stream";
  if (stream == CU_STREAM_PER_THREAD) return "a thread's default stream";
  char text[32];
  std::snprintf(text, sizeof text, "stream %p", static_cast<void*>(stream));
  return text;
}

// Which parts have not said that they have landed.
std::string missing(const TransferState& state) {
  GpuSet relays = 0;
  for (size_t i = 0; i < state.channel_count; ++i) {
    const ChannelUse& use = state.channels[i];
    if (!Channel::has_reached(use.channel->landed, use.landed)) relays |= gpu_bit(use.channel->gpu);
  }
  std::string names;
  for (int gpu = 0; gpu < kMostGpus; ++gpu)
    if ((relays & gpu_bit(gpu)) != 0) names += (names.empty() ? "" : ", ") + std::to_string(gpu);
  return names.empty() ? "its kernels have not left" : "the stream waits for GPU " + names;
}

}  // namespace

std::string describe_wait(const TransferState& state, int target_gpu, uint64_t now_ns) {
  const uint64_t age_ms = now_ns > state.taken_ns ? (now_ns - state.taken_ns) / 1'000'000 : 0;
  return "GPU " + std::to_string(target_gpu) + " " + direction_name(state.direction) + " " +
         std::to_string(state.size_bytes) + " bytes by " + mover_name(state.mover) + " in " +
         stream_name(state.user.stream) + ", enqueued " + std::to_string(age_ms) + " ms ago: " +
         (state.has_begun() ? missing(state)
                            : "the stream has not come so far, so it waits for the program");
}

}  // namespace braid::multipath
