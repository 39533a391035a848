// The outcomes of copies in one line for people, with advice. The report's first line, and the last
// one of `braid compare`.
#pragma once

#include <array>

#include "base/text_writer.h"
#include "multipath/statistics_json.h"
#include "multipath/transfer.h"

namespace braid::preload {

/// Copies by outcome.
struct CopyTotals {
  std::array<multipath::CopyCount, multipath::kVerdictCount> by_verdict{};

  void add(multipath::Verdict verdict, const multipath::CopyCount& count);
};

/// "2 of 4 copies of 108 bytes were carried by braid (101 bytes); 1 copy of 7 bytes ...", without
/// the end of the line. If copies stayed native, it names one reason that affected many bytes, with
/// its remedy if there is one. Allocates nothing.
void write_summary(const CopyTotals& totals, TextWriter& out);

}  // namespace braid::preload
