// The paper's figures 4, 5 and 12 and its table 1: what copies take. Nothing here is simulated; the
// copies were measured on a server, and these figures draw that.
#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "serving/cost/model.h"
#include "tools/serving/designer.h"

namespace braid::tools::serving_figures {
namespace {

using serving::CopyMethod;
using serving::SegmentCopies;
using serving::Way;

// A layer's share of a block, of each of the paper's models (section 4.3.1).
constexpr uint64_t kSegmentBytes = 64 << 10;
constexpr double kEqual = 0.10;  // for "regardless of"
constexpr double kSaturated = 0.9;

std::string size_text(uint64_t size_bytes) {
  return size_bytes >= 1 << 20 ? fmt::format("{}M", size_bytes >> 20)
                               : fmt::format("{}K", size_bytes >> 10);
}

const char* verdict(bool appears) { return appears ? "appears" : "**does not appear**"; }

Figure measured(const Designer& designer, std::string title) {
  return {.title = std::move(title),
          .setting = designer.setting().copies.source,
          .kind = Kind::kMeasured};
}

std::vector<SegmentCopies> of_way(const Designer& designer, Way way) {
  std::vector<SegmentCopies> found;
  for (const SegmentCopies& one : designer.setting().copies.segments)
    if (one.way == way) found.push_back(one);
  return found;
}

/// Each size once, in order.
std::vector<SegmentCopies> by_size(const Designer& designer, Way way) {
  std::vector<SegmentCopies> found = of_way(designer, way);
  std::stable_sort(found.begin(), found.end(), [](const SegmentCopies& a, const SegmentCopies& b) {
    return a.segment_bytes < b.segment_bytes;
  });
  const auto repeated = [](const SegmentCopies& a, const SegmentCopies& b) {
    return a.segment_bytes == b.segment_bytes;
  };
  found.erase(std::unique(found.begin(), found.end(), repeated), found.end());
  return found;
}

/// Turns of segments of 64 KiB both ways, by their number.
std::vector<SegmentCopies> by_count(const Designer& designer) {
  std::vector<SegmentCopies> found = of_way(designer, Way::kBoth);
  std::erase_if(found, [](const SegmentCopies& one) { return one.segment_bytes != kSegmentBytes; });
  std::sort(found.begin(), found.end(),
            [](const SegmentCopies& a, const SegmentCopies& b) { return a.segments < b.segments; });
  return found;
}

/// The bandwidth of each way to copy, at x = 0, 1, ..
std::vector<Curve> bandwidth_of(const std::vector<SegmentCopies>& copies) {
  std::vector<Curve> curves = {{"one by one (vLLM)", {}}, {"batches", {}}};
  const bool has_braid = std::all_of(copies.begin(), copies.end(), [](const SegmentCopies& one) {
    return one.braid_gbps.has_value();
  });
  if (has_braid) curves.push_back({"braid, every link", {}});
  double at = 0;
  for (const SegmentCopies& one : copies) {
    curves[0].points.push_back({at, one.one_by_one_gbps});
    curves[1].points.push_back({at, one.batch_gbps});
    if (has_braid) curves[2].points.push_back({at, *one.braid_gbps});
    ++at;
  }
  return curves;
}

double most_gbps(const Designer& designer) {
  double most = 0;
  for (const SegmentCopies& one : designer.setting().copies.segments)
    most = std::max({most, one.one_by_one_gbps, one.batch_gbps});
  return most;
}

Result<Figure> figure_4(Designer& designer) {
  Figure figure =
      measured(designer, "Copies of KV caches both ways, as vLLM makes them, by tokens");
  const std::vector<SegmentCopies> turns = by_count(designer);
  if (turns.empty())
    return Status::error(designer.setting().copies.source + " has no segments of 64 KiB both ways",
                         "Measure again, with 64K among rotation's --segments");
  for (const char* model : {"Llama-3-8B", "Qwen2.5-32B", "Mixtral-8x7B"}) {
    const kv::ModelShape shape = serving::find_model(model).value().kv;
    CurvePanel panel{model, "tokens each way", "GB/s", bandwidth_of(turns)};
    for (const SegmentCopies& turn : turns)
      panel.x_labels.push_back(
          fmt::format("{}", turn.segments * shape.block_tokens / shape.layers));
    figure.curves.push_back(panel);
  }
  const auto [least, most] = std::minmax_element(
      turns.begin(), turns.end(), [](const SegmentCopies& a, const SegmentCopies& b) {
        return a.one_by_one_gbps < b.one_by_one_gbps;
      });
  const double low = least->one_by_one_gbps, high = most->one_by_one_gbps;
  const double peak = most_gbps(designer);
  figure.findings = {
      {"vLLM's offloading engine achieves less than 5 % of the theoretical peak",
       verdict(high < 0.05 * peak),
       fmt::format("{:.1f} to {:.1f} GB/s, {:.0f} to {:.0f} % of the {:.0f} GB/s that any copies "
                   "reached",
                   low, high, 100 * low / peak, 100 * high / peak, peak)},
      {"regardless of the total transfer token number (within 10 %)",
       verdict(high - low <= kEqual * high), fmt::format("{:.1f} to {:.1f} GB/s", low, high)}};
  return figure;
}

Result<Figure> figure_5(Designer& designer) {
  Figure figure = measured(designer, "Bandwidth both ways by segment size");
  const std::vector<SegmentCopies> sizes = by_size(designer, Way::kBoth);
  CurvePanel panel{"both ways at once", "bytes of a segment", "GB/s", bandwidth_of(sizes)};
  const double peak = most_gbps(designer);
  double small_gbps = 0;
  std::string saturates_from;
  uint64_t saturates_from_bytes = ~uint64_t{0};
  for (const SegmentCopies& one : sizes) {
    panel.x_labels.push_back(size_text(one.segment_bytes));
    if (one.segment_bytes <= kSegmentBytes) small_gbps = std::max(small_gbps, one.one_by_one_gbps);
    if (saturates_from.empty() && one.one_by_one_gbps >= kSaturated * peak) {
      saturates_from = panel.x_labels.back();
      saturates_from_bytes = one.segment_bytes;
    }
  }
  figure.curves = {panel};
  figure.findings = {
      {"the link saturates only with segments of 8 MB and more (90 % of what it reaches)",
       verdict(saturates_from_bytes >= 8 << 20),
       fmt::format("one by one, 90 % of {:.0f} GB/s are reached {}", peak,
                   saturates_from.empty() ? "nowhere" : "from " + saturates_from + " on")},
      {"bandwidth falls below 10 GB/s for segments of 64 KB and less", verdict(small_gbps < 10),
       fmt::format("one by one, up to {:.1f} GB/s with at most 64 KiB", small_gbps)}};
  return figure;
}

Result<Figure> figure_12(Designer& designer) {
  Figure figure = measured(designer, "What launching a copy takes, and the copy, by segment size");
  std::string larger;
  for (const auto& [way, name] :
       {std::pair(Way::kDown, "GPU to host"), {Way::kUp, "host to GPU"}}) {
    CurvePanel panel{name, "bytes of a segment", "us", {{"call (launch)", {}}, {"transfer", {}}}};
    for (const SegmentCopies& one : by_size(designer, way)) {
      // Beyond, the transfer hides everything else in the drawing.
      if (!one.call_us || !one.transfer_us || one.segment_bytes > 4 << 20) continue;
      const auto at = static_cast<double>(panel.x_labels.size());
      panel.x_labels.push_back(size_text(one.segment_bytes));
      panel.curves[0].points.push_back({at, *one.call_us});
      panel.curves[1].points.push_back({at, *one.transfer_us});
      if (*one.call_us > *one.transfer_us)
        larger += fmt::format("{}{} {}", larger.empty() ? "" : ", ", name, panel.x_labels.back());
    }
    figure.curves.push_back(panel);
  }
  figure.findings = {
      {"the launch of cudaMemcpyAsync takes longer than the transfer up to 4 MB",
       verdict(larger.find("4M") != std::string::npos),
       larger.empty() ? "at no size does the call take longer" : "longer: " + larger}};
  return figure;
}

/// A method as the paper measured it on a GH200, with 8 GB each way.
struct PaperMethod {
  const char* name;
  double down_gbps, up_gbps, both_ms;
};
constexpr PaperMethod kPaperMethods[] = {{"naive", 10.75, 9.86, 1556.15},
                                         {"ms", 80.05, 133.51, 159.87},
                                         {"ms_mk", 238.95, 269.69, 63.14},
                                         {"duplex", 180.99, 179.37, 46.80}};

/// Times compare only with each other: the bytes are others. So each is given in DuplexKV's.
std::vector<Finding> beside_the_paper(const std::vector<CopyMethod>& methods) {
  const auto find = [&](const std::string& name) {
    return std::find_if(methods.begin(), methods.end(),
                        [&](const CopyMethod& method) { return method.name == name; });
  };
  const auto duplex = find("duplex");
  std::vector<Finding> findings;
  for (const PaperMethod& paper : kPaperMethods) {
    const auto ours = find(paper.name);
    if (ours == methods.end() || duplex == methods.end()) continue;
    findings.push_back(
        {fmt::format(
             "{}: {:g} GB/s to the host, {:g} to the GPU{}; end to end {:.2f} times DuplexKV",
             paper.name, paper.down_gbps, paper.up_gbps, ours == duplex ? ", both at once" : "",
             paper.both_ms / kPaperMethods[3].both_ms),
         fmt::format("{:.2f}, {:.2f} GB/s{}; {:.2f} times", ours->down_gbps, ours->up_gbps,
                     ours == duplex ? ", one way alone" : "", ours->both_ms / duplex->both_ms),
         fmt::format("{:.2f} ms there, {:.2f} ms here", paper.both_ms, ours->both_ms)});
  }
  return findings;
}

Result<Figure> table_1(Designer& designer) {
  Figure figure = measured(designer, "Methods that move a KV cache");
  const std::vector<CopyMethod>& methods = designer.setting().copies.methods;
  CurvePanel bandwidth{
      "one way alone", "method", "GB/s", {{"GPU to host", {}}, {"host to GPU", {}}}};
  CurvePanel time{"both ways, end to end", "method", "ms", {{"end to end", {}}}};
  for (const CopyMethod& method : methods) {
    const auto at = static_cast<double>(time.x_labels.size());
    bandwidth.x_labels.push_back(method.name);
    time.x_labels.push_back(method.name);
    bandwidth.curves[0].points.push_back({at, method.down_gbps});
    bandwidth.curves[1].points.push_back({at, method.up_gbps});
    time.curves[0].points.push_back({at, method.both_ms});
  }
  figure.curves = {bandwidth, time};
  figure.findings = beside_the_paper(methods);
  const auto faster = [&](const char* words, const char* better, const char* worse) {
    const auto find = [&](const char* name) {
      return std::find_if(methods.begin(), methods.end(),
                          [&](const CopyMethod& method) { return method.name == name; });
    };
    const auto fast = find(better), slow = find(worse);
    if (fast == methods.end() || slow == methods.end()) return;
    figure.findings.push_back(
        {words, verdict(fast->both_ms < slow->both_ms),
         fmt::format("{:.2f} ms and {:.2f} ms", fast->both_ms, slow->both_ms)});
  };
  faster("merged segments (MS) are faster than segments of 64 KB (naive)", "ms", "naive");
  faster("merged kernels (MS+MK) are faster still", "ms_mk", "ms");
  faster("DuplexKV, both directions at once, is faster still", "duplex", "ms_mk");
  faster("(ours) DuplexKV over every link is faster than over one", "braid", "duplex");
  return figure;
}

}  // namespace

std::vector<Maker> figures_of_copies() {
  return {{{"4", "copies as vLLM makes them, by tokens; measured"}, figure_4},
          {{"5", "bandwidth both ways by segment size; measured"}, figure_5},
          {{"12", "launch and transfer times by segment size; measured"}, figure_12},
          {{"table-1", "methods that move a KV cache; measured"}, table_1}};
}

}  // namespace braid::tools::serving_figures
