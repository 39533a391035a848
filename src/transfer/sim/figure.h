// The results of a simulation: tables, plots and verdicts, as plain data; and functions that write
// them.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "base/status.h"
#include "transfer/sim/cluster.h"

namespace braid::transfer::sim {

struct Table {
  std::string title;
  std::vector<std::string> columns;
  std::vector<std::vector<std::string>> rows;
};

struct Series {
  std::string name;
  std::vector<std::pair<double, double>> points;
};

struct Plot {
  std::string name;  ///< of the file, without its ending
  std::string title;
  std::string x_label;
  std::string y_label;
  bool is_x_logarithmic = false;
  bool is_y_logarithmic = false;
  std::vector<Series> series;
  std::vector<std::pair<double, std::string>> marks;  ///< at x: the event there
};

/// One requirement, or a part of one.
struct Verdict {
  std::string row;  ///< "A10" (docs/transfer.md)
  std::string what;
  double figure = 0;
  double bar = 0;
  bool is_bar_least = true;  ///< false: the most
  std::string unit;
  bool is_met() const { return is_bar_least ? figure >= bar : figure <= bar; }
};

struct Figure {
  std::string name;  ///< "tebench"
  std::string title;
  std::string paper;               ///< the paper's result, in a sentence
  std::vector<std::string> notes;  ///< assumptions, and cases where braid loses
  std::vector<Table> tables;
  std::vector<Plot> plots;
  std::vector<Verdict> verdicts;
};

/// Writes report.md, report.json, and an SVG for each plot into a folder, which is made if it is
/// missing.
Status write_report(const std::string& folder, const std::vector<Figure>& figures,
                    const std::vector<Cluster>& clusters, int seeds);

std::string to_svg(const Plot& plot);
std::string to_markdown(const std::vector<Figure>& figures, const std::vector<Cluster>& clusters,
                        int seeds);
std::string to_json(const std::vector<Figure>& figures, int seeds);
/// "A10 | what | 0.99 | at least 0.98 | met"
std::string to_text(const Verdict& verdict);

}  // namespace braid::transfer::sim
