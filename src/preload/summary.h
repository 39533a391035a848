// What became of copies in one line for people: what happened, and what to try. The report's first
// line, and the last one of `braid compare`.
#pragma once

#include <array>

#include "base/text_writer.h"
#include "multipath/statistics_json.h"
#include "multipath/transfer.h"

namespace braid::preload {

/// Copies by what became of them.
struct CopyTotals {
  std::array<multipath::CopyCount, multipath::kVerdictCount> by_verdict{};

  void add(multipath::Verdict verdict, const multipath::CopyCount& count);
};

/// "2 of 4 copies of 108 bytes were carried by braid (101 bytes); 1 copy of 7 bytes ...", without
/// the end of the line. Of the reasons why copies stayed native it names one that many bytes had,
/// with its remedy if there is one. Allocates nothing.
void write_summary(const CopyTotals& totals, TextWriter& out);

}  // namespace braid::preload
