// The one translation unit's part of flow.h, with the kernels; both are loaded before anything
// else.
#pragma once

#include "flow.h"
#include "gpu/programs/words.cuh"

namespace meanwhile {

inline Flow::Flow(int copies, size_t size_bytes)
    : copies_(copies), size_bytes_(size_bytes), stream_(new_stream()), halfway_(new_event()) {
  const size_t all_bytes = words() * sizeof(uint64_t);
  host_ = reinterpret_cast<uint64_t*>(pin(all_bytes));
  device_ = reinterpret_cast<uint64_t*>(allocate(all_bytes));
  wrong_ = reinterpret_cast<unsigned long long*>(allocate(sizeof *wrong_));
  uint64_t* const host = host_;
  const uint64_t seed = seed_;
  in_parts(words(), [=](size_t from, size_t to) {
    for (size_t at = from; at < to; ++at) host[at] = word_at(seed, at);
  });
  fill_words<<<256, 256, 0, stream_>>>(device_, words(), seed_);
  count_wrong<<<256, 256, 0, stream_>>>(device_, words(), seed_, wrong_);
  MUST(cudaGetLastError());
  finish();
}

inline void Flow::prepare(Direction direction) {
  if (direction == Direction::kToDevice) {
    MUST(cudaMemsetAsync(device_, 0, words() * sizeof(uint64_t), stream_));
  } else {
    fill_words<<<256, 256, 0, stream_>>>(device_, words(), ++seed_);
    MUST(cudaGetLastError());
  }
  finish();
}

inline void Flow::enqueue(Direction direction, int from, int to) {
  for (int copy = from; copy < to; ++copy) {
    uint64_t* const host = host_ + static_cast<size_t>(copy) * size_bytes_ / sizeof(uint64_t);
    uint64_t* const device = device_ + (host - host_);
    if (direction == Direction::kToDevice)
      to_device(device, host, size_bytes_, stream_);
    else
      to_host(host, device, size_bytes_, stream_);
  }
}

inline void Flow::enqueue_first_half(Direction direction) {
  enqueue(direction, 0, copies_ / 2);
  MUST(cudaEventRecord(halfway_, stream_));
}

inline void Flow::enqueue_second_half(Direction direction) {
  enqueue(direction, copies_ / 2, copies_);
}

inline void Flow::finish() const { MUST(cudaStreamSynchronize(stream_)); }

inline void Flow::verify(Direction direction, const std::string& what) {
  std::atomic<unsigned long long> wrong{0};
  if (direction == Direction::kToHost) {
    const uint64_t* const host = host_;
    const uint64_t seed = seed_;
    in_parts(words(), [=, &wrong](size_t from, size_t to) {
      unsigned long long mine = 0;
      for (size_t at = from; at < to; ++at) mine += host[at] != word_at(seed, at);
      wrong += mine;
    });
  } else {
    unsigned long long found = 0;
    MUST(cudaMemsetAsync(wrong_, 0, sizeof found, stream_));
    count_wrong<<<256, 256, 0, stream_>>>(device_, words(), seed_, wrong_);
    MUST(cudaGetLastError());
    finish();
    MUST(cudaMemcpy(&found, wrong_, sizeof found, cudaMemcpyDeviceToHost));
    wrong = found;
  }
  require(wrong == 0, what + ": " + std::to_string(wrong) + " wrong words");
}

}  // namespace meanwhile
