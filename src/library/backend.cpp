#include "library/backend.h"

#include <unistd.h>

#include <array>

#include "preload/report.h"

namespace braid::library {

std::string render_json(const preload::StatisticsSource& counted, int wait_ms,
                        std::span<const std::string> problems) {
  const auto paths = std::make_unique<multipath::PathCounts>();
  std::array<multipath::RelayCount, multipath::kMostGpus> relays;
  const size_t count = counted.collect(wait_ms, *paths, relays);
  std::string text;
  const auto append = [](void* all, const char* more, size_t size_bytes) {
    static_cast<std::string*>(all)->append(more, size_bytes);
  };
  {
    std::array<char, 1024> buffer;
    TextWriter out(buffer, append, &text);
    preload::write_report(StatsFormat::kJson, {getpid(), {}}, counted.statistics(), *paths,
                          std::span(relays).first(count), out, problems);
  }
  return text;
}

}  // namespace braid::library
