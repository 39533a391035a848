#include "multipath/copy_engine_mover.h"

#include <algorithm>

#include "cuda/scoped_context.h"
#include "multipath/access.h"

namespace braid::multipath {
namespace {

struct Range {
  uint64_t begin = 0;
  uint64_t end = 0;
};

CUresult copy(const cuda::Driver& driver, const CopyEngineJob& job, Range range, CUstream stream) {
  if (range.begin == range.end) return CUDA_SUCCESS;
  char* host = static_cast<char*>(job.whole.host) + range.begin;
  const CUdeviceptr device = job.whole.device + range.begin;
  const uint64_t bytes = range.end - range.begin;
  const bool to_device = job.direction == Direction::kHostToDevice;
  const CUresult copied = to_device ? driver.cuMemcpyHtoDAsync(device, host, bytes, stream)
                                    : driver.cuMemcpyDtoHAsync(host, device, bytes, stream);
  if (copied == CUDA_SUCCESS) return copied;
  // What a relay has left behind must be copied: the driver may have refused the one call only.
  const auto other_end = reinterpret_cast<CUdeviceptr>(host);
  return to_device ? driver.cuMemcpyAsync(device, other_end, bytes, stream)
                   : driver.cuMemcpyAsync(other_end, device, bytes, stream);
}

// Through the channel's buffer, which its earlier chunks have left by then. `has_begun`: becomes
// true once something of it is in the channel.
CUresult stage(const cuda::Driver& driver, const CopyEngineJob& job, Range range,
               const Channel& channel, bool& has_begun) {
  char* host = static_cast<char*>(job.whole.host) + range.begin;
  const CUdeviceptr device = job.whole.device + range.begin;
  const uint64_t bytes = range.end - range.begin;
  const bool to_device = job.direction == Direction::kHostToDevice;
  const CUresult first =
      to_device ? driver.cuMemcpyHtoDAsync(channel.buffer, host, bytes, channel.stream)
                : driver.cuMemcpyDtoDAsync(channel.buffer, device, bytes, channel.stream);
  if (first != CUDA_SUCCESS) return first;
  has_begun = true;
  return to_device ? driver.cuMemcpyDtoDAsync(device, channel.buffer, bytes, channel.stream)
                   : driver.cuMemcpyDtoHAsync(host, channel.buffer, bytes, channel.stream);
}

// One relay's share while it is being enqueued. Chunks go to its channels in turn; the first one is
// half as long, so that one channel is on PCIe while the other is on NVLink.
class Share {
 public:
  Share(const cuda::Driver& driver, const CopyEngineJob& job, const RelayPath& path, Range range)
      : driver_(driver), job_(job), path_(path), left_(range), begin_(range.begin) {}

  bool has_more() const { return left_.begin < left_.end && refused_ == CUDA_SUCCESS; }

  void begin(const TransferState& state) {
    for (Channel* channel : path_.taken()) note(wait_begun(driver_, state, *channel));
    if (!path_.may_time || !has_more()) return;
    ++path_.channels[0]->ops;
    is_timed_ = path_.relay->timer().begin(*path_.channels[0],
                                           {job_.direction, path_.sequence, job_.native_us});
  }

  void enqueue_chunk(cuda::ScopedContext& scope) {
    note(scope.enter(path_.relay->context()));
    if (refused_ != CUDA_SUCCESS) return;
    const size_t turn = chunks_ % path_.channel_count;
    Channel& channel = *path_.channels[turn];
    channel.ops += job_.is_staged ? 2 : 1;
    const bool is_first = chunks_ == 0 && path_.channel_count > 1;
    const uint64_t wanted =
        job_.is_staged && is_first ? (job_.plan.chunk_bytes + 1) / 2 : job_.plan.chunk_bytes;
    const Range chunk{left_.begin, std::min(left_.end, left_.begin + wanted)};
    const CUresult taken = job_.is_staged ? stage(driver_, job_, chunk, channel, has_begun_[turn])
                                          : copy(driver_, job_, chunk, channel.stream);
    note(taken);
    if (taken != CUDA_SUCCESS) return;
    has_begun_[turn] = true;
    left_.begin = chunk.end;
    ++chunks_;
  }

  // The transfer's last channels are those whose word will come. Of the others, the events of those
  // are waited for that have something of it.
  void end(TransferState& state) {
    if (is_timed_) {
      ++last_channel().ops;
      path_.relay->timer().end(last_channel());
    }
    for (size_t i = 0; i < path_.channel_count; ++i) {
      Channel* channel = path_.channels[i];
      const CUresult said = signal_landed(driver_, *channel);
      note(said);
      if (said == CUDA_SUCCESS)
        state.add(*channel);
      else if (has_begun_[i])
        unsignaled_[unsignaled_count_++] = {channel, 0};
    }
  }

  CUresult wait_for_unsignaled(CUstream stream) const {
    return wait_by_events(driver_, std::span(unsignaled_).first(unsignaled_count_), stream);
  }

  Range left() const { return left_; }
  uint64_t carried_bytes() const { return left_.begin - begin_; }
  bool has_unsignaled() const { return unsignaled_count_ != 0; }
  CUresult refused() const { return refused_; }

 private:
  Channel& last_channel() const {
    return *path_.channels[(chunks_ + path_.channel_count - 1) % path_.channel_count];
  }
  void note(CUresult step) {
    if (refused_ == CUDA_SUCCESS) refused_ = step;
  }

  const cuda::Driver& driver_;
  const CopyEngineJob& job_;
  const RelayPath& path_;
  Range left_;
  uint64_t begin_;
  size_t chunks_ = 0;
  bool is_timed_ = false;
  std::array<bool, kChannelsOfPath> has_begun_{};  // by channel: something of the share is in it
  CUresult refused_ = CUDA_SUCCESS;
  std::array<ChannelUse, kChannelsOfPath> unsignaled_{};
  size_t unsignaled_count_ = 0;
};

}  // namespace

Enqueued enqueue_copies(const cuda::Driver& driver, const CopyEngineJob& job,
                        TransferState& state) {
  Enqueued moved;
  if (job.relays.empty()) {  // the copy that was asked for
    if (copy(driver, job, {0, job.whole.size_bytes}, job.stream) == CUDA_SUCCESS)
      moved.verdict = Verdict::kAccelerated;
    return moved;
  }
  if (signal_begun(driver, state, job.stream) != CUDA_SUCCESS) return moved;
  if (copy(driver, job, {0, job.plan.direct_bytes}, job.stream) != CUDA_SUCCESS) return moved;

  std::array<std::optional<Share>, cuda::kMaxPaths> shares;
  cuda::ScopedContext scope(driver);
  uint64_t at = job.plan.direct_bytes;
  for (size_t i = 0; i < job.relays.size(); ++i) {
    const uint64_t end = at + job.plan.relay_bytes[i];
    shares[i].emplace(driver, job, job.relays[i], Range{at, end});
    at = end;
  }
  const auto shares_in_use = std::span(shares).first(job.relays.size());
  for (auto& share : shares_in_use) share->begin(state);
  for (bool is_more = true; is_more;) {
    is_more = false;
    for (size_t i = 0; i < job.relays.size(); ++i) {
      if (!shares[i]->has_more()) continue;
      shares[i]->enqueue_chunk(scope);
      is_more = is_more || shares[i]->has_more();
    }
  }
  for (auto& share : shares_in_use) share->end(state);
  scope.leave();

  CUresult result = CUDA_SUCCESS;
  const auto must = [&](CUresult step) { result = result == CUDA_SUCCESS ? step : result; };
  for (size_t i = 0; i < job.relays.size(); ++i) {
    moved.relay_bytes[i] = shares[i]->carried_bytes();
    if (moved.relay_bytes[i] != 0) moved.via |= gpu_bit(job.relays[i].relay->gpu());
    moved.refused[i] = shares[i]->refused();
    must(copy(driver, job, shares[i]->left(), job.stream));
  }
  must(wait_landed(driver, state, job.stream));
  for (size_t i = 0; i < job.relays.size(); ++i) {
    if (!shares[i]->has_unsignaled()) continue;
    state.retired = true;
    must(shares[i]->wait_for_unsignaled(job.stream));
  }
  moved.verdict = result == CUDA_SUCCESS ? Verdict::kAccelerated : Verdict::kFailed;
  moved.error = result;
  return moved;
}

}  // namespace braid::multipath
