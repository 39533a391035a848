#include "tools/tebench_plot.h"
#include "tools/write_file.h"

#include <nlohmann/json.hpp>

#include "transfer/sim/figure.h"

namespace braid::tools {
namespace {

constexpr std::chrono::milliseconds kInterval{50};

}  // namespace

ThroughputPlot::ThroughputPlot(Transfer& engine)
    : engine_(engine), begun_(std::chrono::steady_clock::now()) {
  thread_ = std::thread([this] { work(); });
}

ThroughputPlot::~ThroughputPlot() { stop(); }

void ThroughputPlot::stop() {
  is_ending_ = true;
  if (thread_.joinable()) thread_.join();
}

void ThroughputPlot::work() {
  do {  // once at least: a short run may be over before this thread has begun
    std::this_thread::sleep_for(kInterval);
    look();
  } while (!is_ending_);
}

void ThroughputPlot::look() {
  const auto report = engine_.report(Transfer::Form::kJson);
  if (!report.ok()) return;
  const std::chrono::duration<double> now = std::chrono::steady_clock::now() - begun_;
  const double took_s = now.count() - looked_s_;
  looked_s_ = now.count();
  const auto json = nlohmann::json::parse(report.value(), nullptr, false);
  if (!json.is_object()) return;
  for (const auto& each : json["braid_transfer"]["ways"]) {
    const auto text = each["way"].get<std::string>();
    const auto state = each["state"].get<std::string>();
    const auto bytes = each["delivered_bytes"].get<double>();
    const auto [found, is_new] = ways_.try_emplace(text);
    Way& way = found->second;
    if (!is_new) way.gbps.emplace_back(looked_s_, (bytes - way.bytes) / took_s / 1e9);
    way.bytes = bytes;
    if (state != way.state) marks_.emplace_back(looked_s_, state);
    way.state = state;
  }
}

Status ThroughputPlot::write(const std::string& file) {
  stop();
  transfer::sim::Plot plot;
  plot.title = "Throughput of each way";
  plot.x_label = "seconds";
  plot.y_label = "GB/s";
  for (const auto& [text, way] : ways_) plot.series.push_back({text, way.gbps});
  plot.marks = marks_;
  return write_file(file, transfer::sim::to_svg(plot));
}

}  // namespace braid::tools
