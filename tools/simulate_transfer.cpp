// `braid simulate transfer`: the scheduler of src/transfer on a simulated network.
#include <fmt/core.h>

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "base/try.h"
#include "tools/commands.h"
#include "tools/locate.h"
#include "tools/numbers.h"
#include "tools/one_of.h"
#include "tools/write_file.h"
#include "transfer/sim/figures.h"

namespace braid::tools {
namespace {

namespace sim = transfer::sim;

struct SimulateOptions {
  std::string figure = "all";
  int seeds = 3;
  std::string out;
  std::string json_file;
  std::string testbed = "h800x8-2node";
  std::string limited = "limited-rails";
};

Result<sim::Cluster> load_cluster(const std::string& name_or_path) {
  BRAID_LET(path, find_cluster(name_or_path));
  return sim::load_cluster(path);
}

bool is_wanted(const SimulateOptions& options, const sim::FigureRow& row) {
  return options.figure == "all" || options.figure == row.name;
}

Status check_gpus(const SimulateOptions& options, const sim::Cluster& testbed) {
  for (const sim::FigureRow& row : sim::figure_rows())
    if (is_wanted(options, row) && testbed.gpu_count() < row.gpus)
      return Status::error(
          fmt::format("--testbed: a host of {} has {} GPUs, and --figure {} needs {}", testbed.name,
                      testbed.gpu_count(), row.name, row.gpus),
          "Give another testbed, or choose another figure");
  return {};
}

// Simulations take minutes: it says before them where their results cannot go.
Status check_outputs(const SimulateOptions& options) {
  if (!options.out.empty()) BRAID_TRY(make_folder(options.out));
  return options.json_file.empty() ? Status() : check_writable(options.json_file);
}

int simulate(const SimulateOptions& options) {
  const auto testbed = load_cluster(options.testbed), limited = load_cluster(options.limited);
  for (const auto* cluster : {&testbed, &limited})
    if (!cluster->ok()) return fail(cluster->status());
  if (const Status refused = check_gpus(options, testbed.value()); !refused.ok())
    return fail(refused);
  if (const Status refused = check_outputs(options); !refused.ok()) return fail(refused);
  const sim::Clusters clusters{testbed.value(), limited.value()};
  std::vector<sim::Figure> figures;
  for (const sim::FigureRow& row : sim::figure_rows()) {
    if (!is_wanted(options, row)) continue;
    figures.push_back(row.run(clusters, options.seeds));
    for (const sim::Verdict& verdict : figures.back().verdicts)
      fmt::print("{}\n", sim::to_text(verdict));
    std::fflush(stdout);
  }
  const std::vector<sim::Cluster> inputs = {clusters.testbed, clusters.limited};
  if (options.out.empty()) {
    fmt::print("\n{}", sim::to_markdown(figures, inputs, options.seeds));
  } else {
    const Status written = sim::write_report(options.out, figures, inputs, options.seeds);
    if (!written.ok()) return fail(written);
    fmt::print("\n{}/report.md, report.json and a plot for each figure\n", options.out);
  }
  if (!options.json_file.empty()) {
    const Status written = write_file(options.json_file, sim::to_json(figures, options.seeds));
    if (!written.ok()) return fail(written);
  }
  const bool all_met = std::all_of(figures.begin(), figures.end(), [](const sim::Figure& figure) {
    return std::all_of(figure.verdicts.begin(), figure.verdicts.end(),
                       [](const sim::Verdict& verdict) { return verdict.is_met(); });
  });
  return all_met ? 0 : 1;
}

}  // namespace

void add_simulate_transfer_command(CLI::App& app, int& exit_code) {
  auto options = std::make_shared<SimulateOptions>();
  CLI::App* command = app.get_subcommand("simulate")
                          ->add_subcommand("transfer",
                                           "transfers over many rails (docs/transfer.md), beside "
                                           "other methods and an oracle; the exit "
                                           "code is 1 where a bar is not met");
  std::vector<std::string> figures = names_of(sim::figure_rows());
  figures.insert(figures.begin(), "all");
  command->add_option("--figure", options->figure, fmt::format("{}", fmt::join(figures, ", ")))
      ->type_name("NAME")
      ->check(one_of("figure", figures));
  command->add_option("--seeds", options->seeds, "runs of each case, with seeds 1 to N")
      ->check(between(1, 1000));
  command
      ->add_option("--out", options->out, "where the report and its plots go; else it is printed")
      ->type_name("DIR");
  command->add_option("--json", options->json_file, "the tables and verdicts")->type_name("FILE");
  command
      ->add_option("--testbed", options->testbed,
                   "the cluster that stands for the paper's: a name or a JSON file")
      ->type_name("CLUSTER");
  command->add_option("--limited", options->limited, "the cluster of slow rails, likewise")
      ->type_name("CLUSTER");
  command->callback([options, &exit_code] { exit_code = simulate(*options); });
}

}  // namespace braid::tools
