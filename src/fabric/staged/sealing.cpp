#include "fabric/staged/sealing.h"

#include "fabric/staged/records.h"

namespace braid::fabric::staged {
namespace {

/// What the seal covers. The size at the end tells where the place begins.
std::vector<std::byte> with_place(Bytes message, Bytes place) {
  std::vector<std::byte> covered(message.begin(), message.end());
  covered.insert(covered.end(), place.begin(), place.end());
  append_number(covered, place.size());
  return covered;
}

}  // namespace

void Sealing::seal(std::vector<std::byte>& message, Bytes receiver, uint64_t line,
                   uint64_t sequence) const {
  append_number(message, line);
  append_number(message, sequence);
  const Seal seal = secret_.seal(with_place(message, receiver));
  message.insert(message.end(), seal.begin(), seal.end());
}

Bytes Sealing::open(Bytes bytes) {
  if (bytes.size() < kMarkBytes + kTrailerBytes) {
    count_malformed();
    return {};
  }
  const Bytes sealed = bytes.first(bytes.size() - kSealBytes);
  if (!secret_.is_sealed(with_place(sealed, place_), bytes.last(kSealBytes))) {
    ++(secret_.is_set() ? rejections_.unauthenticated : rejections_.malformed);
    return {};
  }
  Bytes numbers = sealed.last(kTrailerBytes - kSealBytes);
  const uint64_t line = read_number(numbers), sequence = read_number(numbers);
  if (!window_of(line).accept(sequence)) {
    ++rejections_.replayed;
    return {};
  }
  return bytes.first(bytes.size() - kTrailerBytes);
}

Sealing::LineWindow& Sealing::window_of(uint64_t line) {
  if (const auto known = windows_.find(line); known != windows_.end()) return known->second;
  if (windows_.size() == kLinesMax) {
    earlier_windows_ = std::move(windows_);
    windows_.clear();
  }
  LineWindow& window = windows_[line];
  if (const auto earlier = earlier_windows_.find(line); earlier != earlier_windows_.end())
    window = earlier->second;
  return window;
}

}  // namespace braid::fabric::staged
