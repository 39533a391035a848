#include "preload/summary.h"

namespace braid::preload {
namespace {

using multipath::CopyCount;
using multipath::Verdict;

struct Advice {
  const char* reason;  // "3 copies of 12.0 MB ..."
  const char* remedy;  // "" where there is none
};

Advice advice_on(Verdict verdict) {
  switch (verdict) {
    case Verdict::kAccelerated:
    case Verdict::kStaged: break;
    case Verdict::kBelowThreshold: return {"were too small to gain", ""};
    case Verdict::kNoGain:
      return {"would not have gained by braid's costs", "`braid tune` measures them here"};
    case Verdict::kCold: return {"came after a pause, and had no time to wake the relays", ""};
    case Verdict::kBlocked:
      return {"found every multiprocessor taken by the program's kernels", ""};
    case Verdict::kPageable:
      return {"were of pageable memory, and were not staged", "pin it, or see --pageable"};
    case Verdict::kNotLinear:
      return {"were not between linear host and GPU memory", "docs/statistics.md: not_linear"};
    case Verdict::kCapturing: return {"were recorded in graphs, which stay native", ""};
    case Verdict::kForeignContext:
      return {"were of contexts that braid does not know", "docs/statistics.md: foreign_context"};
    case Verdict::kNoRelay: return {"had no other GPU to help them", "`braid doctor` says why"};
    case Verdict::kSwitchedOff:
      return {"came while braid was switched off", "`braid switch on` takes it back"};
    case Verdict::kNotReady:
      return {"came before the relays were open", "`--opening wait` carries them"};
    case Verdict::kSaturated:
      return {"found too many copies under way", "docs/statistics.md: saturated"};
    case Verdict::kDriverError:
      return {"were refused to braid by the driver", "`--log stderr` shows which"};
    case Verdict::kFailed: return {"failed", "`--log stderr` shows which"};
  }
  return {"stayed native", ""};
}

bool is_carried(Verdict verdict) {
  return verdict == Verdict::kAccelerated || verdict == Verdict::kStaged;
}

CopyCount sum_of(const CopyTotals& totals, bool only_carried) {
  CopyCount sum;
  for (size_t i = 0; i < totals.by_verdict.size(); ++i)
    if (!only_carried || is_carried(static_cast<Verdict>(i))) sum += totals.by_verdict[i];
  return sum;
}

bool is_more(const CopyCount& one, const CopyCount& other) {
  return one.bytes > other.bytes || (one.bytes == other.bytes && one.calls > other.calls);
}

// What most bytes stayed native for. What can be helped comes first, unless it has less than a
// tenth of them.
Verdict main_reason(const CopyTotals& totals, uint64_t native_bytes) {
  CopyCount most, helped;
  Verdict for_most = Verdict::kAccelerated, for_helped = Verdict::kAccelerated;
  for (size_t i = 0; i < totals.by_verdict.size(); ++i) {
    const CopyCount& count = totals.by_verdict[i];
    const auto verdict = static_cast<Verdict>(i);
    if (is_carried(verdict)) continue;
    if (is_more(count, most)) most = count, for_most = verdict;
    const bool can_be_helped = *advice_on(verdict).remedy != '\0';
    if (can_be_helped && is_more(count, helped)) helped = count, for_helped = verdict;
  }
  return helped.calls != 0 && helped.bytes >= native_bytes / 10 ? for_helped : for_most;
}

void write_size(uint64_t bytes, TextWriter& out) {
  constexpr uint64_t kGb = 1'000'000'000, kMb = 1'000'000, kKb = 1'000;
  if (bytes < kKb) {
    out << bytes << " bytes";
    return;
  }
  const uint64_t unit = bytes >= kGb ? kGb : bytes >= kMb ? kMb : kKb;
  out << bytes / unit << "." << bytes % unit / (unit / 10)
      << (unit == kGb   ? " GB"
          : unit == kMb ? " MB"
                        : " KB");
}

void write_copies(const CopyCount& count, TextWriter& out) {
  out << count.calls << (count.calls == 1 ? " copy of " : " copies of ");
  write_size(count.bytes, out);
}

}  // namespace

void CopyTotals::add(Verdict verdict, const CopyCount& count) {
  by_verdict[static_cast<size_t>(verdict)] += count;
}

void write_summary(const CopyTotals& totals, TextWriter& out) {
  const CopyCount all = sum_of(totals, false), carried = sum_of(totals, true);
  if (all.calls == 0) {
    out << "no copies between host memory and a GPU";
    return;
  }
  out << carried.calls << " of ";
  write_copies(all, out);
  out << " were carried by braid";
  if (carried.calls != 0) {
    out << " (";
    write_size(carried.bytes, out);
    out << ")";
  }
  const Verdict reason = main_reason(totals, all.bytes - carried.bytes);
  if (is_carried(reason)) return;
  const Advice advice = advice_on(reason);
  out << "; ";
  write_copies(totals.by_verdict[static_cast<size_t>(reason)], out);
  out << " " << advice.reason;
  if (*advice.remedy != '\0') out << ": " << advice.remedy;
}

}  // namespace braid::preload
