// What a run has broken, and when: the only excuses that anything has for failing. A process is
// known by its address here.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

namespace braid::fabric::test {

enum class Fault : uint8_t {
  kPause,   ///< of a process: it says nothing, and goes on
  kCrash,   ///< of a process, for good
  kStall,   ///< of a rail: what is under way waits
  kFail,    ///< of a rail: what is under way fails
  kSilent,  ///< of a rail: what is under way is never heard of again
};

class Faults {
 public:
  using Process = const void*;
  static constexpr uint64_t kForGood = ~uint64_t{0};

  /// `rail`: none, for faults of processes.
  void add(Fault what, Process process, std::optional<size_t> rail, uint64_t begin_ns,
           uint64_t end_ns);

  // Of postings from one to the other, either way, that were under way at a time in [from, to].

  /// Some may have failed.
  bool fails(Process a, Process b, uint64_t from_ns, uint64_t to_ns) const;
  /// One that was tried over every rail may have failed on all.
  bool fails_on_all(Process a, Process b, size_t rails, uint64_t from_ns, uint64_t to_ns) const;
  /// Some that were under way by then may never be heard of again, on this rail or on any.
  bool swallows(Process a, Process b, std::optional<size_t> rail, uint64_t to_ns,
                uint64_t from_ns = 0) const;
  /// `listener` may have heard nothing of `speaker` for `silence_ns` before `to`: a beat
  /// goes over each rail.
  bool silences(Process speaker, Process listener, size_t rails, uint64_t silence_ns,
                uint64_t to_ns) const;
  /// For how long messages were held up, at most.
  uint64_t delay_ns(Process a, Process b, uint64_t to_ns) const;

 private:
  struct One {
    Fault what;
    Process process;
    std::optional<size_t> rail;
    uint64_t begin_ns;
    uint64_t end_ns;
  };
  template <typename Is>
  bool any(Process a, Process b, uint64_t from_ns, uint64_t to_ns, const Is& is) const;

  std::vector<One> all_;
};

}  // namespace braid::fabric::test
