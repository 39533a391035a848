#include "fabric/faults.h"

#include <algorithm>

namespace braid::fabric::test {

void Faults::add(Fault what, Process process, std::optional<size_t> rail, uint64_t begin_ns,
                 uint64_t end_ns) {
  all_.push_back({what, process, rail, begin_ns, end_ns});
}

template <typename Is>
bool Faults::any(Process a, Process b, uint64_t from_ns, uint64_t to_ns, const Is& is) const {
  return std::any_of(all_.begin(), all_.end(), [&](const One& one) {
    const bool is_theirs = one.process == a || one.process == b;
    return is_theirs && one.begin_ns <= to_ns && one.end_ns >= from_ns && is(one);
  });
}

bool Faults::fails(Process a, Process b, uint64_t from_ns, uint64_t to_ns) const {
  return any(a, b, from_ns, to_ns,
             [](const One& one) { return one.what == Fault::kFail || one.what == Fault::kCrash; });
}

bool Faults::fails_on_all(Process a, Process b, size_t rails, uint64_t from_ns,
                          uint64_t to_ns) const {
  for (size_t rail = 0; rail < rails; ++rail)
    if (!any(a, b, from_ns, to_ns, [&](const One& one) {
          return one.what == Fault::kCrash || (one.what == Fault::kFail && one.rail == rail);
        }))
      return false;
  return true;
}

bool Faults::swallows(Process a, Process b, std::optional<size_t> rail, uint64_t to_ns,
                      uint64_t from_ns) const {
  return any(a, b, from_ns, to_ns, [&](const One& one) {
    return one.what == Fault::kCrash || (one.what == Fault::kSilent && (!rail || one.rail == rail));
  });
}

/// A pause says nothing about others: who was stopped itself has missed nobody.
bool Faults::silences(Process speaker, Process listener, size_t rails, uint64_t silence_ns,
                      uint64_t to_ns) const {
  const uint64_t from_ns = to_ns - std::min(to_ns, silence_ns);
  const auto is_pause = [](const One& one) {
    return one.what == Fault::kPause || one.what == Fault::kCrash;
  };
  if (any(speaker, speaker, from_ns, to_ns, is_pause)) return true;
  size_t bad = 0;
  for (size_t rail = 0; rail < rails; ++rail) {
    const bool is_held =
        any(speaker, listener, from_ns, to_ns, [&](const One& one) { return one.rail == rail; });
    bad += is_held || swallows(speaker, listener, rail, to_ns);
  }
  return bad == rails;
}

uint64_t Faults::delay_ns(Process a, Process b, uint64_t to_ns) const {
  uint64_t sum_ns = 0;
  for (const One& one : all_)
    if ((one.process == a || one.process == b) && one.begin_ns <= to_ns)
      sum_ns += std::min(one.end_ns, to_ns) - one.begin_ns;
  return sum_ns;
}

}  // namespace braid::fabric::test
