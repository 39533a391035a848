#include "library/backend.h"

#include <unistd.h>

#include <array>

#include "base/written_text.h"
#include "preload/report.h"

namespace braid::library {

std::string render_json(const preload::StatisticsSource& counted, int wait_ms,
                        std::span<const std::string> problems) {
  const auto paths = std::make_unique<multipath::PathCounts>();
  std::array<multipath::RelayCount, multipath::kMostGpus> relays;
  const size_t count = counted.collect(wait_ms, *paths, relays);
  return written_text([&](TextWriter& out) {
    preload::write_report(StatsFormat::kJson, {getpid(), {}}, counted.statistics(), *paths,
                          std::span(relays).first(count), out, problems);
  });
}

}  // namespace braid::library
