// `braid simulate serving`: policies on a simulated GPU, one run or the figures of a paper.
#include <fmt/core.h>

#include <cmath>
#include <filesystem>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "base/try.h"
#include "kv/layout.h"
#include "serving/policies/make_policy.h"
#include "tools/commands.h"
#include "tools/numbers.h"
#include "tools/one_of.h"
#include "tools/serving/designer.h"
#include "tools/serving/losses.h"
#include "tools/serving/report.h"
#include "tools/write_file.h"
#include "topology/json_reader.h"

namespace braid::tools {
namespace {

namespace figures = serving_figures;
namespace fs = std::filesystem;

struct Options {
  std::string figure, out = "serving-figures", losses;
  std::string trace, lengths, calibration, copies;
  std::string model = "Qwen2.5-32B", gpu = "H200", link = "braid4";
  std::vector<std::string> policies;
  serving::PolicyParameters parameters;
  double rate_rps = 0, load = 1, seconds = 300;
  double hbm_gb = 0, host_gb = 400;
  uint32_t token_budget = 1024, max_running = 1024;
  double ttft_ms = 5000, tbt_ms = 100;
  int seeds = 10, jobs = 0, gpus = 1;
};

// What a run or a figure would pass over is refused.
Status check_trace(const Options& options) {
  const std::string& figure = options.figure;
  const bool has_trace = !options.trace.empty();
  if (has_trace && !figure.empty() && figure != "trace" && figure != "all")
    return Status::error(fmt::format("--trace has no meaning with --figure {}", figure),
                         "Leave it out, or choose --figure trace or all");
  if (!has_trace && figure == "trace")
    return Status::error("--figure trace needs a trace", "Give it by --trace FILE");
  if (has_trace && !options.lengths.empty() && figure != "all")
    return Status::error("--lengths has no meaning with --trace, whose requests have their own",
                         "Give one of them");
  return {};
}

Result<figures::Setting> setting_of(const Options& options) {
  BRAID_TRY(check_trace(options));
  figures::Setting setting;
  setting.calibration = serving::h200_calibration();
  if (!options.calibration.empty()) {
    BRAID_LET(calibration, serving::read_calibration(options.calibration));
    setting.calibration = calibration;
  }
  setting.copies = serving::h200_copies();
  if (!options.copies.empty()) {
    BRAID_LET(copies, serving::read_copy_times(options.copies));
    setting.copies = copies;
  }
  setting.seconds = options.seconds;
  setting.token_budget = options.token_budget;
  setting.max_running = options.max_running;
  setting.slo = {std::llround(options.ttft_ms * 1e3), std::llround(options.tbt_ms * 1e3)};
  if (!options.trace.empty()) {
    BRAID_LET(trace, serving::read_trace(options.trace));
    if (!trace.has_arrivals)
      return Status::error(options.trace + " has lengths but no times",
                           "Give it as --lengths: arrivals are Poisson's then");
    setting.trace = std::make_shared<serving::Trace>(std::move(trace));
  }
  if (!options.lengths.empty()) {
    BRAID_LET(lengths, serving::read_trace(options.lengths));
    setting.lengths =
        std::make_shared<serving::Lengths>(fs::path(options.lengths).filename().string(), "given",
                                           std::make_shared<serving::Trace>(std::move(lengths)));
  }
  return setting;
}

Status make_figures(const Options& options, const figures::Setting& setting,
                    figures::Laboratory& laboratory) {
  std::vector<std::string> names = {options.figure};
  if (options.figure == "all") {
    names.clear();
    for (const figures::FigureName& known : figures::figure_names()) names.emplace_back(known.name);
  }
  const fs::path folder = options.out;
  BRAID_TRY(make_folder(folder));
  std::string report = figures::report_head(setting, options.seeds);
  for (const std::string& name : names) {
    BRAID_LET(figure, figures::make_figure(name, setting, laboratory));
    const std::string json_name = fmt::format("figure-{}.json", name);
    const std::string json = figures::json_of(figure, setting, laboratory);
    BRAID_TRY(write_file(folder / json_name, json));
    BRAID_TRY(write_file(folder / fmt::format("figure-{}.svg", name),
                         figures::svg_of(figure, laboratory)));
    BRAID_LET(losses, figures::losses_of(json, json_name));
    report += figures::report_of(figure, laboratory) + losses;
    // What is there stays, whatever comes next.
    BRAID_TRY(write_file(folder / "report.md", report));
    fmt::print("figure {}: {}\n", name, figure.title);
    std::fflush(stdout);
  }
  fmt::print("{}\n", (folder / "report.md").string());
  return {};
}

// Without a policy and a rate.
Result<figures::Case> case_of(const Options& options, const figures::Setting& setting,
                              const figures::Designer& designer) {
  BRAID_LET(one, designer.base(options.model, options.gpu, designer.chats()));
  if (options.hbm_gb > 0) one.engine.gpu.hbm_bytes = options.hbm_gb * 1e9;
  one.engine.host_bytes = options.host_gb * 1e9;
  one.gpus = options.gpus;
  if (setting.trace) {
    one.trace = setting.trace;
    one.lengths = nullptr;
  }
  return one;
}

Result<std::vector<figures::Case>> cases_of(const Options& options, const figures::Case& base,
                                            const figures::Designer& designer) {
  std::vector<figures::Case> cases;
  for (const std::string& policy : options.policies) {
    figures::Arm arm = figures::plain(policy, options.link);
    arm.steps_wait_for_copies = policy == "paper";
    arm.parameters = options.parameters;
    BRAID_LET(one, designer.with(base, arm));
    cases.push_back(one);
  }
  return cases;
}

Result<double> rate_of(const Options& options, const figures::Case& base,
                       figures::Designer& designer) {
  if (options.rate_rps > 0) return options.rate_rps;
  BRAID_LET(knee, designer.knee_rps(base));
  return options.load * knee;
}

Status print_runs(const Options& options, const figures::Setting& setting,
                  figures::Laboratory& laboratory) {
  figures::Designer designer(setting, laboratory);
  BRAID_LET(base, case_of(options, setting, designer));
  BRAID_LET(blocks, base.engine.gpu_blocks());
  BRAID_LET(cases, cases_of(options, base, designer));
  BRAID_LET(rate_rps, rate_of(options, base, designer));  // simulates: all options are checked
  for (figures::Case& one : cases) one.arrivals.rate_rps = rate_rps;
  BRAID_TRY(laboratory.run(cases));
  fmt::print(
      "simulated: {}; {:.2f} requests/s; {} blocks of KV cache; {} seeds\nstep times: {}\n\n",
      figures::words_of(base), rate_rps, blocks, laboratory.seeds(), setting.calibration.source);
  using namespace figures::shown;
  const std::vector<figures::Shown> columns = {kTtft,    kTbtTokens, kTbtMeans,   kTbtLongest,
                                               kTtftP99, kTbtP99,    kLongestP99, kThroughput,
                                               kGoodput, kRotations, kStalls};
  fmt::print("{:15}{:>8}{:>8}{:>8}{:>8}{:>9}{:>9}{:>10}{:>10}{:>9}{:>8}{:>8}\n", "policy", "TTFT %",
             "token %", "mean %", "long %", "TTFT99 s", "TBT99 ms", "gap99 ms", "tokens/s",
             "good/s", "rotat.", "stall %");
  const auto print_row = [](const std::string& name, const std::vector<double>& values) {
    fmt::print(
        "{:15}{:8.1f}{:8.1f}{:8.1f}{:8.1f}{:9.2f}{:9.1f}{:10.0f}{:10.0f}{:9.2f}{:8.2f}{:8.1f}\n",
        name, values[0], values[1], values[2], values[3], values[4], values[5], values[6],
        values[7], values[8], values[9], values[10]);
  };
  for (size_t index = 0; index < cases.size(); ++index) {
    std::vector<double> means, half_widths;
    for (const figures::Shown& column : columns) {
      const double scale = std::string(column.unit) == "%" ? 100 : 1;
      const figures::Estimate value =
          figures::estimate(figures::by_seed(laboratory.results(cases[index]), column.of));
      means.push_back(value.mean * scale);
      half_widths.push_back(value.half_width * scale);
    }
    print_row(options.policies[index], means);
    if (laboratory.seeds() > 1) print_row("  ± (95 %)", half_widths);
  }
  return {};
}

int print_losses(const std::string& path) {
  const auto json = topology::read_text(path);
  if (!json.ok()) return fail(json.status());
  const auto losses = figures::losses_of(json.value(), path);
  if (!losses.ok()) return fail(losses.status());
  fmt::print("{}", losses.value());
  return 0;
}

int simulate(Options options) {
  if (!options.losses.empty()) return print_losses(options.losses);
  if (options.policies.empty()) options.policies = {"fcfs_recompute", "paper", "braid"};
  const auto setting = setting_of(options);
  if (!setting.ok()) return fail(setting.status());
  const int threads = options.jobs > 0
                          ? options.jobs
                          : std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
  figures::Laboratory laboratory(options.seeds, threads);
  const Status done = options.figure.empty() ? print_runs(options, setting.value(), laboratory)
                                             : make_figures(options, setting.value(), laboratory);
  return done.ok() ? 0 : fail(done);
}

std::string listed_policies() {
  std::string names;
  for (const serving::PolicyName& known : serving::policy_names())
    names += fmt::format("{}{}", names.empty() ? "" : ", ", known.name);
  return names;
}

std::string listed_figures() {
  std::string names = "all";
  for (const figures::FigureName& known : figures::figure_names())
    names += fmt::format(", {} ({})", known.name, known.what);
  return names;
}

// Of one run. Figures choose their own: with `figure`, each of these is refused.
void add_run_options(CLI::App& whole, Options& options, CLI::Option* figure) {
  CLI::Option_group& command = *whole.add_option_group("one run");
  command.add_option("--policy", options.policies, "one or more of " + listed_policies())
      ->delimiter(',')
      ->type_name("NAMES");
  command.add_option("--model", options.model, kv::model_names());
  command.add_option("--gpu", options.gpu, serving::gpu_names());
  command.add_option("--link", options.link, serving::link_names() + ", or LOAD,SAVE,BOTH in GB/s");
  CLI::Option* rate =
      command.add_option("--rate", options.rate_rps, "requests a second; instead of --load")
          ->default_str("")
          ->check(above_zero())
          ->check(between(0.0, 1e6));
  command.add_option("--load", options.load, "in units of the knee of FCFS")
      ->check(between(0.01, 100.0))
      ->excludes(rate);
  command.add_option("--hbm-gb", options.hbm_gb, "another size of the GPU's memory")
      ->default_str("")
      ->check(between(1.0, 1e6));
  command.add_option("--host-gb", options.host_gb, "host memory for KV caches, by GPU")
      ->check(between(0.0, 1e6));
  command.add_option("--gpus", options.gpus, "on one host; what is printed is of the first")
      ->check(between(1, 16));
  command.add_option("--alpha", options.parameters.lag.alpha, "of the lag of rotary requests");
  command.add_option("--beta-tbt", options.parameters.lag.beta_tbt, "beta_B");
  command.add_option("--beta-ttft", options.parameters.lag.beta_ttft, "beta_F");
  command.add_option("--transfer-blocks", options.parameters.transfer_blocks, "B_xfer of paper");
  command.add_flag("--late-only,!--no-late-only", options.parameters.late_only,
                   "braid: only late requests preempt others");
  for (CLI::Option* option : command.get_options([](const CLI::Option*) { return true; }))
    option->excludes(figure);
}

}  // namespace

void add_simulate_command(CLI::App& app, int& exit_code) {
  CLI::App* command = app.add_subcommand("simulate", "what a server would do (docs/serving.md)");
  command->require_subcommand(1);
  auto options = std::make_shared<Options>();
  CLI::App* serving_command = command->add_subcommand(
      "serving", "requests, a GPU, its links and a policy, in virtual time");
  std::vector<std::string> figures = names_of(figures::figure_names());
  figures.insert(figures.begin(), "all");
  CLI::Option* figure = serving_command->add_option("--figure", options->figure, listed_figures())
                            ->type_name("NAME")
                            ->check(one_of("figure", std::move(figures)));
  serving_command->add_option("--out", options->out, "where figures and their report go")
      ->type_name("DIR");
  serving_command
      ->add_option("--losses", options->losses,
                   "simulates nothing: where RotaSched loses in a figure's JSON")
      ->type_name("FILE");
  serving_command->add_option("--seeds", options->seeds, "runs of each case")
      ->check(between(1, 1000));
  serving_command->add_option("--seconds", options->seconds, "of arrivals in each run")
      ->check(between(1.0, 1e6));
  serving_command->add_option("--jobs", options->jobs, "threads; 0: one for each CPU")
      ->check(between(0, 1024));
  serving_command
      ->add_option("--token-budget", options->token_budget, "tokens a step, for every policy")
      ->check(between(16, 1 << 20));
  serving_command
      ->add_option("--max-running", options->max_running, "requests on the GPU, for every policy")
      ->check(between(1, 1 << 20));
  serving_command->add_option("--ttft-ms", options->ttft_ms, "objective of the first token")
      ->check(between(0.001, 1e9));
  serving_command->add_option("--tbt-ms", options->tbt_ms, "objective of the gaps between tokens")
      ->check(between(0.001, 1e9));
  serving_command->add_option("--trace", options->trace, "requests that were recorded, stretched")
      ->type_name("FILE");
  serving_command->add_option("--lengths", options->lengths, "lengths that were recorded")
      ->type_name("FILE");
  serving_command
      ->add_option("--calibration", options->calibration,
                   "step times measured by bench/serving/calibrate.py")
      ->type_name("FILE");
  serving_command
      ->add_option("--copies", options->copies,
                   "what rotation (bench/kv) has printed: for figures 4, 5, 12 and table-1")
      ->type_name("FILE");
  add_run_options(*serving_command, *options, figure);
  serving_command->callback([options, &exit_code] { exit_code = simulate(*options); });
}

}  // namespace braid::tools
