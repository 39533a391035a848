#include "serving/policies/make_policy.h"

#include <string>

#include "base/try.h"
#include "serving/policies/kinds.h"

namespace braid::serving {
namespace {

using Make = std::unique_ptr<Policy> (*)(const PolicyParameters&);
template <std::unique_ptr<Policy> (*make)()>
std::unique_ptr<Policy> without_parameters(const PolicyParameters&) {
  return make();
}

struct Kind {
  PolicyName name;
  Make make;
};

const Kind kKinds[] = {
    {{"paper", "RotaSched as in SuperInfer, Algorithm 1 to the letter"}, make_paper},
    {{"braid", "RotaSched with what the design notes mend"}, make_braid},
    {{"fcfs_recompute", "vLLM: in order of arrival; who is preempted is computed again"},
     without_parameters<make_fcfs_recompute>},
    {{"swapped_first", "swapped requests come back before others are admitted"},
     without_parameters<make_swapped_first>},
    {{"waiting_first", "new requests preempt those that have run longest"},
     without_parameters<make_waiting_first>},
    {{"sjf_oracle", "fewest remaining tokens first, which an oracle tells"},
     without_parameters<make_sjf_oracle>},
    {{"edf", "the earliest deadline of a next token first"}, without_parameters<make_edf>},
    {{"slo_classes", "classes by priority, in each the order of arrival"},
     without_parameters<make_slo_classes>},
    {{"lightllm-like", "admits what will still fit at the expected peak"},
     without_parameters<make_lightllm_like>},
    {{"ltr-like", "the shortest first as a ranking model expects, preempting others"},
     without_parameters<make_ltr_like>},
    {{"neo-like", "who makes room goes on from host memory, where the CPU attends to it"},
     without_parameters<make_neo_like>},
};

}  // namespace

const std::vector<PolicyName>& policy_names() {
  static const std::vector<PolicyName> names = [] {
    std::vector<PolicyName> all;
    for (const Kind& kind : kKinds) all.push_back(kind.name);
    return all;
  }();
  return names;
}

Result<std::unique_ptr<Policy>> make_policy(std::string_view name,
                                            const PolicyParameters& parameters) {
  BRAID_TRY(check(parameters.lag));
  std::string known;
  for (const Kind& kind : kKinds) {
    if (name == kind.name.name) return kind.make(parameters);
    known += (known.empty() ? "" : ", ") + std::string(kind.name.name);
  }
  return Status::error("there is no policy '" + std::string(name) + "'", "Choose one of " + known);
}

}  // namespace braid::serving
