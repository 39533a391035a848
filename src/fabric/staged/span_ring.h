// Spans of a ring of bytes. They are taken in order, given back in any order, and become free again
// in the order in which they were taken. Pure: the memory is elsewhere. Not synchronised.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>

namespace braid::fabric::staged {

class SpanRing {
 public:
  struct Span {
    uint64_t offset_bytes = 0;
    uint64_t number = 0;  ///< for giving it back
  };

  explicit SpanRing(uint64_t size_bytes) : size_bytes_(size_bytes) {}

  /// Nothing: there is no room now. Spans begin at multiples of kAlignmentBytes.
  std::optional<Span> take(uint64_t size_bytes);
  bool has_room(uint64_t size_bytes) const { return find_room(rounded(size_bytes)).has_value(); }
  /// Once for each span.
  void give_back(uint64_t number);

  static constexpr uint64_t kAlignmentBytes = 256;

 private:
  struct Taken {
    uint64_t begin;
    uint64_t end;
    bool is_free;
  };
  static uint64_t rounded(uint64_t size_bytes) {
    return (size_bytes + kAlignmentBytes - 1) / kAlignmentBytes * kAlignmentBytes;
  }
  std::optional<uint64_t> find_room(uint64_t size_bytes) const;

  uint64_t size_bytes_;
  uint64_t first_number_ = 0;  // of the front
  std::deque<Taken> spans_;
};

}  // namespace braid::fabric::staged
