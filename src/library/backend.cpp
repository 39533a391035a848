#include "library/backend.h"

#include <unistd.h>

#include <array>

#include "preload/report.h"

namespace braid::library {

std::string render_json(const preload::Statistics& statistics, const multipath::PathCounts& paths,
                        std::span<const multipath::RelayCount> relays,
                        std::span<const std::string> problems) {
  std::string text;
  const auto append = [](void* all, const char* more, size_t size_bytes) {
    static_cast<std::string*>(all)->append(more, size_bytes);
  };
  {
    std::array<char, 1024> buffer;
    TextWriter out(buffer, append, &text);
    preload::write_report(StatsFormat::kJson, {getpid(), {}}, statistics, paths, relays, out,
                          problems);
  }
  return text;
}

}  // namespace braid::library
