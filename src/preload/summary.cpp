#include "preload/summary.h"

#include <array>

namespace braid::preload {
namespace {

using multipath::Mover;
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
      return {"found every multiprocessor taken by the program's kernels",
              "`--mover copy-engine` needs none"};
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

struct Totals {
  Count all, carried;
  std::array<Count, multipath::kVerdictCount> native{};  // by why they stayed so
};

void add(Count& to, const Count& more) {
  to.calls += more.calls;
  to.bytes += more.bytes;
}

Totals totals_of(const Statistics& statistics) {
  Totals totals;
  statistics.for_each([&](HookId, Verdict verdict, Mover, const Count& count) {
    add(totals.all, count);
    add(is_carried(verdict) ? totals.carried : totals.native[static_cast<size_t>(verdict)], count);
  });
  return totals;
}

bool is_more(const Count& one, const Count& other) {
  return one.bytes > other.bytes || (one.bytes == other.bytes && one.calls > other.calls);
}

// The index of what most bytes stayed native for. What can be helped comes first, unless it has
// less than a tenth of them.
size_t main_reason(const Totals& totals) {
  const uint64_t native_bytes = totals.all.bytes - totals.carried.bytes;
  size_t most = 0, helped = 0;
  for (size_t i = 0; i < totals.native.size(); ++i) {
    const Count& count = totals.native[i];
    if (is_more(count, totals.native[most])) most = i;
    const bool can_be_helped = *advice_on(static_cast<Verdict>(i)).remedy != '\0';
    if (can_be_helped && is_more(count, totals.native[helped])) helped = i;
  }
  const Count& help = totals.native[helped];
  return help.calls != 0 && help.bytes >= native_bytes / 10 ? helped : most;
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

void write_copies(const Count& count, TextWriter& out) {
  out << count.calls << (count.calls == 1 ? " copy of " : " copies of ");
  write_size(count.bytes, out);
}

}  // namespace

void write_summary(const ReportedProcess& process, const Statistics& statistics, TextWriter& out) {
  out << "braid: process " << process.pid << " (" << process.name << "): ";
  const Totals totals = totals_of(statistics);
  if (totals.all.calls == 0) {
    out << "no copies between host memory and a GPU. What its children copy, they report\n";
    return;
  }
  out << totals.carried.calls << " of ";
  write_copies(totals.all, out);
  out << " were carried by braid";
  if (totals.carried.calls != 0) {
    out << " (";
    write_size(totals.carried.bytes, out);
    out << ")";
  }
  const size_t reason = main_reason(totals);
  if (const Count& native = totals.native[reason]; native.calls != 0) {
    const Advice advice = advice_on(static_cast<Verdict>(reason));
    out << "; ";
    write_copies(native, out);
    out << " " << advice.reason;
    if (*advice.remedy != '\0') out << ": " << advice.remedy;
  }
  out << "\n";
}

}  // namespace braid::preload
