// Throughput of each way over time while `braid tebench` runs, with the moments at which a way
// changed its state.
#pragma once

#include <atomic>
#include <chrono>
#include <map>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/status.h"
#include "braid/transfer.h"

namespace braid::tools {

/// Looks at the engine's report in a thread of its own, until `write`.
class ThroughputPlot {
 public:
  explicit ThroughputPlot(Transfer& engine);
  ~ThroughputPlot();
  ThroughputPlot(const ThroughputPlot&) = delete;
  ThroughputPlot& operator=(const ThroughputPlot&) = delete;

  /// An SVG.
  Status write(const std::string& file);

 private:
  struct Way {
    std::string state = "up";
    double bytes = 0;
    std::vector<std::pair<double, double>> gbps;  // by second
  };
  void work();
  void look();
  void stop();

  Transfer& engine_;
  const std::chrono::steady_clock::time_point begun_;
  double looked_s_ = 0;
  std::map<std::string, Way> ways_;
  std::vector<std::pair<double, std::string>> marks_;
  std::atomic<bool> is_ending_ = false;
  std::thread thread_;
};

}  // namespace braid::tools
