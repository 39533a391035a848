#include "multipath/transfer_state.h"

#include <algorithm>

namespace braid::multipath {

namespace {

// In the room of `start`, on a cache line of its own.
constexpr size_t kPassedWord = 16;

}  // namespace

static_assert(sizeof(cuda::TransferCounters) <= TransferPool::kStride &&
              sizeof(cuda::TransferReport) <= TransferPool::kStride);

bool TransferState::have_kernels_left() const {
  // Acquire: the counts beside the generation were written before it.
  return std::atomic_ref<uint32_t>(report->generation).load(std::memory_order_acquire) ==
         generation;
}

void TransferState::mark_kernels_left() {
  std::atomic_ref<uint32_t>(report->generation).store(generation, std::memory_order_release);
}

bool TransferState::have_channels_landed() const {
  return std::all_of(channels.begin(), channels.begin() + channel_count, [](const ChannelUse& use) {
    return Channel::has_reached(use.channel->landed, use.landed);
  });
}

TransferPool::TransferPool(CUdeviceptr counters, void* words) : transfers_(kMostTransfers) {
  auto* reports = static_cast<char*>(words);
  char* starts = reports + kBytes;
  free_.reserve(kMostTransfers);
  in_use_.reserve(kMostTransfers);
  for (size_t i = 0; i < kMostTransfers; ++i) {
    transfers_[i].counters = counters + i * kStride;
    transfers_[i].report = reinterpret_cast<cuda::TransferReport*>(reports + i * kStride);
    transfers_[i].start = reinterpret_cast<uint32_t*>(starts + i * kStride);
    transfers_[i].passed = transfers_[i].start + kPassedWord;
    free_.push_back(&transfers_[i]);
  }
}

TransferState* TransferPool::acquire(const StreamKey& user) {
  int users = 0;
  for (size_t i = 0; i < in_use_.size();) {
    TransferState* state = in_use_[i];
    if (state->is_free()) {
      free_.push_back(state);
      in_use_[i] = in_use_.back();
      in_use_.pop_back();
      continue;
    }
    if (state->user == user) ++users;
    ++i;
  }
  if (free_.empty() || users >= kMostOfOneStream) return nullptr;
  TransferState* state = free_.back();
  free_.pop_back();
  in_use_.push_back(state);
  state->is_acquired = true;
  state->user = user;
  state->begun_ns = 0;
  state->channel_count = 0;
  return state;
}

bool TransferPool::all_free() const {
  return std::none_of(in_use_.begin(), in_use_.end(),
                      [](const TransferState* state) { return state->is_in_use(); });
}

}  // namespace braid::multipath
