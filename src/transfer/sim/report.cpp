#include <fmt/format.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "transfer/sim/figure.h"

namespace braid::transfer::sim {
namespace {

using Json = nlohmann::ordered_json;

std::string row_text(const std::vector<std::string>& cells) {
  return fmt::format("| {} |\n", fmt::join(cells, " | "));
}

std::string table_text(const Table& table) {
  std::string text = fmt::format("{}:\n\n", table.title) + row_text(table.columns);
  text += row_text(std::vector<std::string>(table.columns.size(), "---"));
  for (const auto& row : table.rows) text += row_text(row);
  return text + "\n";
}

std::string bar_text(const Verdict& verdict) {
  return fmt::format("{} {:.4g} {}", verdict.is_bar_least ? "at least" : "at most", verdict.bar,
                     verdict.unit);
}

std::string verdicts_text(const std::vector<Verdict>& verdicts) {
  Table table{"Requirements", {"row", "what", "figure", "bar", "verdict"}, {}};
  for (const Verdict& verdict : verdicts)
    table.rows.push_back({verdict.row, verdict.what,
                          fmt::format("{:.4g} {}", verdict.figure, verdict.unit), bar_text(verdict),
                          verdict.is_met() ? "met" : "**not met**"});
  return table_text(table);
}

std::string cluster_text(const Cluster& cluster) {
  Table table{fmt::format("`{}`: {}", cluster.name, cluster.description),
              {"figure", "value", "source"},
              {}};
  for (const ClusterRow& row : cluster_rows()) {
    const topology::Figure& figure = cluster.*row.figure;
    table.rows.push_back({row.name, fmt::format("{:.6g}", figure.value), figure.source});
  }
  return table_text(table);
}

Json plot_json(const Plot& plot) {
  Json json = {{"name", plot.name}, {"x", plot.x_label}, {"y", plot.y_label}};
  for (const Series& series : plot.series)
    json["series"].push_back({{"name", series.name}, {"points", series.points}});
  for (const auto& [x, what] : plot.marks) json["marks"].push_back({{"x", x}, {"what", what}});
  return json;
}

Status write_text(const std::filesystem::path& path, const std::string& text) {
  std::ofstream file(path, std::ios::binary);
  file << text;
  file.close();
  if (file) return {};
  return Status::error(fmt::format("cannot write '{}': {}", path.string(), std::strerror(errno)),
                       "Name a folder where you may write");
}

}  // namespace

std::string to_text(const Verdict& verdict) {
  return fmt::format("{:<4} {:<76} {:>10.4g} {:<3} {:<22} {}", verdict.row, verdict.what,
                     verdict.figure, verdict.unit, bar_text(verdict),
                     verdict.is_met() ? "met" : "NOT MET");
}

std::string to_markdown(const std::vector<Figure>& figures, const std::vector<Cluster>& clusters,
                        int seeds) {
  std::string text = fmt::format(
      "# braid simulate transfer\n\nThe scheduler of `src/transfer` in virtual time, beside other "
      "methods with the same batches and rails, and an oracle: the max-min optimum, without "
      "slices. Seeds: {}. Equal seeds give this file again, byte for byte.\n\n",
      seeds);
  std::vector<Verdict> all;
  for (const Figure& figure : figures)
    all.insert(all.end(), figure.verdicts.begin(), figure.verdicts.end());
  if (!all.empty()) text += "## Verdicts\n\n" + verdicts_text(all);
  for (const Figure& figure : figures) {
    text += fmt::format("## {}\n\n`--figure {}`\n\n", figure.title, figure.name);
    if (!figure.paper.empty()) text += fmt::format("The paper: {}\n\n", figure.paper);
    for (const Table& table : figure.tables) text += table_text(table);
    for (const Plot& plot : figure.plots)
      text += fmt::format("![{}]({}.svg)\n\n", plot.title, plot.name);
    for (const std::string& note : figure.notes) text += fmt::format("- {}\n", note);
    if (!figure.notes.empty()) text += "\n";
  }
  text += "## Inputs\n\nThese numbers are inputs; all others above are outputs.\n\n";
  for (const Cluster& cluster : clusters) text += cluster_text(cluster);
  text.pop_back();
  return text;
}

std::string to_json(const std::vector<Figure>& figures, int seeds) {
  Json json = {{"seeds", seeds}, {"figures", Json::array()}};
  for (const Figure& figure : figures) {
    Json one = {{"name", figure.name},
                {"title", figure.title},
                {"paper", figure.paper},
                {"notes", figure.notes}};
    for (const Table& table : figure.tables)
      one["tables"].push_back(
          {{"title", table.title}, {"columns", table.columns}, {"rows", table.rows}});
    for (const Plot& plot : figure.plots) one["plots"].push_back(plot_json(plot));
    for (const Verdict& verdict : figure.verdicts)
      one["verdicts"].push_back({{"row", verdict.row},
                                 {"what", verdict.what},
                                 {"figure", verdict.figure},
                                 {"unit", verdict.unit},
                                 {"bar", verdict.bar},
                                 {"is_bar_least", verdict.is_bar_least},
                                 {"is_met", verdict.is_met()}});
    json["figures"].push_back(std::move(one));
  }
  return json.dump(1) + "\n";
}

Status write_report(const std::string& folder, const std::vector<Figure>& figures,
                    const std::vector<Cluster>& clusters, int seeds) {
  const std::filesystem::path at(folder);
  std::error_code failed;
  std::filesystem::create_directories(at, failed);
  if (failed)
    return Status::error(fmt::format("cannot make the folder '{}': {}", folder, failed.message()),
                         "Name a folder where you may write");
  std::vector<std::pair<std::string, std::string>> files = {
      {"report.md", to_markdown(figures, clusters, seeds)},
      {"report.json", to_json(figures, seeds)}};
  for (const Figure& figure : figures)
    for (const Plot& plot : figure.plots) files.emplace_back(plot.name + ".svg", to_svg(plot));
  for (const auto& [name, text] : files)
    if (const Status written = write_text(at / name, text); !written.ok()) return written;
  return {};
}

}  // namespace braid::transfer::sim
