#include "serving/cost/model.h"

#include <cmath>
#include <string>

namespace braid::serving {
namespace {

constexpr uint64_t kElementBytes = 2;

const Model kModels[] = {
    {"Llama-3-8B", 4096, 32, 14336, 128256, 1, 1, "config.json of meta-llama/Meta-Llama-3-8B", {}},
    {"Qwen2.5-32B", 5120, 40, 27648, 152064, 1, 1, "config.json of Qwen/Qwen2.5-32B", {}},
    {"Mixtral-8x7B",
     4096,
     32,
     14336,
     32000,
     8,
     2,
     "config.json of mistralai/Mixtral-8x7B-v0.1",
     {}},
};

}  // namespace

uint64_t Model::attention_parameters() const {
  const uint64_t query = uint64_t{heads} * kv.head_size;
  const uint64_t key = uint64_t{kv.kv_heads} * kv.head_size;
  return hidden * (2 * query + 2 * key);
}

uint64_t Model::expert_parameters() const { return uint64_t{3} * hidden * intermediate; }

uint64_t Model::weight_bytes() const {
  const uint64_t layer = attention_parameters() + experts * expert_parameters();
  return kElementBytes * (kv.layers * layer + 2 * head_parameters());
}

uint64_t Model::kv_token_bytes() const {
  return uint64_t{2} * kv.layers * kv.kv_heads * kv.head_size * kv.element_bytes;
}

double Model::experts_touched(double tokens) const {
  if (experts == 1) return 1;
  return experts * (1 - std::pow(1 - static_cast<double>(experts_per_token) / experts, tokens));
}

Result<Model> find_model(std::string_view name) {
  for (const Model& known : kModels)
    if (name == known.name) {
      Model model = known;
      model.kv = *kv::find_model(known.name);
      return model;
    }
  return Status::error("there is no model '" + std::string(name) + "'",
                       "Choose one of " + kv::model_names());
}

}  // namespace braid::serving
