// The statistics as one line of JSON, for the interposer and the library. docs/statistics.md
// explains the fields. Allocates nothing: a signal handler may write them.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "base/histogram.h"
#include "base/text_writer.h"
#include "multipath/path_counts.h"
#include "multipath/relay_health.h"
#include "multipath/transfer.h"

namespace braid::multipath {

struct CopyCount {
  uint64_t calls = 0;
  uint64_t bytes = 0;

  void operator+=(const CopyCount& more) {
    calls += more.calls;
    bytes += more.bytes;
  }
};

/// Call the members in their order, each as often as needed, and `end` once.
class StatisticsJson {
 public:
  StatisticsJson(int64_t pid, TextWriter& out);

  /// Rows of one entry point must be adjacent, and within it rows of one verdict.
  void add(std::string_view entry_point, Verdict verdict, Mover mover, const CopyCount& count);
  void add_cost(std::string_view cost_class, const Histogram& cost_ns);
  void add(const PathCount& path);
  void add(const RelayCount& relay);
  void add_problem(std::string_view problem);
  /// Closes the line, without a newline.
  void end();

 private:
  enum class Section : uint8_t { kEntryPoints, kCosts, kPaths, kRelays, kProblems, kEnd };

  void enter(Section section);
  void leave(Section section);
  void write_verdict();
  void write_movers();

  TextWriter& out_;
  Section section_ = Section::kEntryPoints;
  const char* separator_ = "";
  // The open row: one verdict, all movers.
  std::string_view entry_point_;
  Verdict verdict_ = Verdict::kAccelerated;
  CopyCount count_;
  bool is_verdict_open_ = false;
  std::array<CopyCount, kMoverCount> movers_{};
};

/// Percentiles that the statistics give of a cost.
struct Percentile {
  unsigned per_mille;
  const char* key;       ///< in JSON and text
  const char* quantile;  ///< in Prometheus
};
inline constexpr std::array<Percentile, 3> kPercentiles = {
    {{500, "p50", "0.5"}, {900, "p90", "0.9"}, {990, "p99", "0.99"}}};

}  // namespace braid::multipath
