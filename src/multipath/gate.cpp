#include "multipath/gate.h"

#include <array>

namespace braid::multipath {

CUresult signal_begun(const cuda::Driver& driver, TransferState& state, CUstream stream) {
  ++state.uses;
  const CUresult said = driver.cuStreamWriteValue32(stream, state.start_address(), state.uses, 0);
  if (said != CUDA_SUCCESS) --state.uses;
  return said;
}

CUresult wait_begun(const cuda::Driver& driver, const TransferState& state, Channel& channel) {
  ++channel.ops;
  return driver.cuStreamWaitValue32(channel.stream, state.start_address(), state.uses,
                                    CU_STREAM_WAIT_VALUE_GEQ);
}

CUresult signal_landed(const cuda::Driver& driver, Channel& channel) {
  ++channel.ops;
  const CUresult said =
      driver.cuStreamWriteValue32(channel.stream, channel.landed_address(), channel.issued + 1, 0);
  if (said == CUDA_SUCCESS) channel.note_issued();
  return said;
}

CUresult wait_done(const cuda::Driver& driver, TransferState& state, CUstream stream,
                   unsigned flags) {
  std::array<CUstreamBatchMemOpParams, 2> steps{};
  steps[0].waitValue.operation = CU_STREAM_MEM_OP_WAIT_VALUE_32;
  steps[0].waitValue.address = state.counters + offsetof(cuda::TransferCounters, done);
  steps[0].waitValue.value = state.done;
  steps[0].waitValue.flags = flags;
  steps[1].writeValue.operation = CU_STREAM_MEM_OP_WRITE_VALUE_32;
  steps[1].writeValue.address = reinterpret_cast<CUdeviceptr>(state.passed);
  steps[1].writeValue.value = state.uses;
  const CUresult waits = driver.cuStreamBatchMemOp(stream, steps.size(), steps.data(), 0);
  if (waits == CUDA_SUCCESS) state.gated = state.uses;
  return waits;
}

CUresult wait_landed(const cuda::Driver& driver, const TransferState& state, CUstream stream) {
  std::array<CUstreamBatchMemOpParams, kMostChannelUses> waits{};
  for (size_t i = 0; i < state.channel_count; ++i) {
    const ChannelUse& use = state.channels[i];
    waits[i].waitValue.operation = CU_STREAM_MEM_OP_WAIT_VALUE_32;
    waits[i].waitValue.address = use.channel->landed_address();
    waits[i].waitValue.value = use.landed;
    waits[i].waitValue.flags = CU_STREAM_WAIT_VALUE_GEQ;
  }
  if (state.channel_count == 0) return CUDA_SUCCESS;
  const CUresult waited = driver.cuStreamBatchMemOp(
      stream, static_cast<unsigned>(state.channel_count), waits.data(), 0);
  if (waited == CUDA_SUCCESS) return waited;
  return wait_by_events(driver, std::span(state.channels).first(state.channel_count), stream);
}

CUresult wait_by_events(const cuda::Driver& driver, std::span<const ChannelUse> channels,
                        CUstream stream) {
  CUresult result = CUDA_SUCCESS;
  for (const ChannelUse& use : channels) {
    ++use.channel->ops;
    CUresult waited = driver.cuEventRecord(use.channel->end, use.channel->stream);
    if (waited == CUDA_SUCCESS) waited = driver.cuStreamWaitEvent(stream, use.channel->end, 0);
    if (waited != CUDA_SUCCESS) result = waited;
  }
  return result;
}

}  // namespace braid::multipath
