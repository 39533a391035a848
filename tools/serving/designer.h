// What figures are put together from.
#pragma once

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "tools/serving/figures.h"

namespace braid::tools::serving_figures {

/// A policy with all that belongs to it.
struct Arm {
  std::string name;
  std::string policy;
  std::string link;
  bool steps_wait_for_copies = false;
  PolicyParameters parameters{};
};

// SuperInfer on its superchip, and what it is compared with there; and on a PCIe server.
Arm vllm();
Arm paper_on(const std::string& link);
Arm braid_on(const std::string& link);
Arm plain(const std::string& policy, const std::string& link);

namespace shown {
extern const Shown kTtft, kTbtTokens, kTbtMeans, kTbtLongest;
extern const Shown kTtftP99, kTbtP99, kLongestP99;
extern const Shown kThroughput, kGoodput, kRotations, kStalls, kRecomputes;
}  // namespace shown

class Designer {
 public:
  Designer(const Setting& setting, Laboratory& laboratory)
      : setting_(setting), laboratory_(laboratory) {}

  const Setting& setting() const { return setting_; }
  Laboratory& laboratory() { return laboratory_; }

  /// Without a policy and a rate.
  Result<Case> base(const std::string& model, const std::string& gpu, const Lengths& lengths) const;
  Result<Case> with(Case base, const Arm& arm) const;
  Result<double> knee_rps(const Case& base) { return laboratory_.knee_rps(base); }

  /// Load in units of the knee of FCFS; without `loads`, from well below it to well beyond it.
  Result<Panel> by_load(const std::string& title, const Case& base, const std::vector<Arm>& arms,
                        const std::vector<Shown>& metrics, const std::vector<double>& loads = {});
  /// At fixed loads, in units of the knee, one series each; `change` makes the case of an x.
  using Change = std::function<Status(Case&, double x)>;
  Result<Panel> by_parameter(const std::string& title, const Case& base, const Arm& arm,
                             const std::vector<double>& loads, const std::string& x_name,
                             const std::vector<double>& x, const Change& change,
                             const std::vector<Shown>& metrics);
  Status run(const Figure& figure);

  Lengths chats() const;
  Lengths long_chats() const;

 private:
  const Setting& setting_;
  Laboratory& laboratory_;
};

/// "Qwen2.5-32B, chat-like lengths, GH200"
std::string words_of(const Case& base);

using Make = Result<Figure> (*)(Designer& designer);
struct Maker {
  FigureName name;
  Make make;
};
std::vector<Maker> figures_of_the_paper();
std::vector<Maker> figures_of_copies();
std::vector<Maker> figures_beyond_it();

}  // namespace braid::tools::serving_figures
