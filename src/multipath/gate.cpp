#include "multipath/gate.h"

#include <array>

namespace braid::multipath {

CUresult say_begun(const cuda::Driver& driver, Ticket& ticket, CUstream stream) {
  ++ticket.uses;
  const CUresult said = driver.cuStreamWriteValue32(stream, ticket.start_address(), ticket.uses, 0);
  if (said != CUDA_SUCCESS) --ticket.uses;
  return said;
}

CUresult wait_begun(const cuda::Driver& driver, const Ticket& ticket, const Channel& channel) {
  return driver.cuStreamWaitValue32(channel.stream, ticket.start_address(), ticket.uses,
                                    CU_STREAM_WAIT_VALUE_GEQ);
}

CUresult say_landed(const cuda::Driver& driver, Channel& channel) {
  const CUresult said =
      driver.cuStreamWriteValue32(channel.stream, channel.landed_address(), channel.issued + 1, 0);
  if (said == CUDA_SUCCESS) ++channel.issued;
  return said;
}

CUresult wait_landed(const cuda::Driver& driver, const Ticket& ticket, CUstream stream) {
  std::array<CUstreamBatchMemOpParams, kMostChannelUses> waits{};
  for (size_t i = 0; i < ticket.channel_count; ++i) {
    const ChannelUse& use = ticket.channels[i];
    waits[i].waitValue.operation = CU_STREAM_MEM_OP_WAIT_VALUE_32;
    waits[i].waitValue.address = use.channel->landed_address();
    waits[i].waitValue.value = use.landed;
    waits[i].waitValue.flags = CU_STREAM_WAIT_VALUE_GEQ;
  }
  if (ticket.channel_count == 0) return CUDA_SUCCESS;
  const CUresult waited = driver.cuStreamBatchMemOp(
      stream, static_cast<unsigned>(ticket.channel_count), waits.data(), 0);
  if (waited == CUDA_SUCCESS) return waited;
  return wait_by_events(driver, std::span(ticket.channels).first(ticket.channel_count), stream);
}

CUresult wait_by_events(const cuda::Driver& driver, std::span<const ChannelUse> channels,
                        CUstream stream) {
  CUresult result = CUDA_SUCCESS;
  for (const ChannelUse& use : channels) {
    CUresult waited = driver.cuEventRecord(use.channel->end, use.channel->stream);
    if (waited == CUDA_SUCCESS) waited = driver.cuStreamWaitEvent(stream, use.channel->end, 0);
    if (waited != CUDA_SUCCESS) result = waited;
  }
  return result;
}

}  // namespace braid::multipath
