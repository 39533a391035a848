#include "serving/cost/step_time.h"

#include <algorithm>

namespace braid::serving {
namespace {

// TFLOP/s are 10^6 FLOP a microsecond; GB/s are 10^3 bytes a microsecond.
double compute_us(double flops, double tflops) { return flops / (tflops * 1e6); }
double move_us(double bytes, double gbps) { return bytes / (gbps * 1e3); }

constexpr double kElementBytes = 2;

double products_us(const StepConstants& constants, double multiplied, double read) {
  return std::max(compute_us(2 * multiplied, constants.matmul_tflops),
                  move_us(kElementBytes * read, constants.weight_gbps)) +
         constants.matmul_us;
}

// Two residual additions and norms, rotary embedding, the cache's new entries, the activation:
// elements that a token reads and writes between the products of a layer.
double glue_elements(const Model& model) {
  const double key = static_cast<double>(model.kv.kv_heads) * model.kv.head_size;
  const double query = static_cast<double>(model.heads) * model.kv.head_size;
  return 2.0 * 5 * model.hidden + 3 * (query + 2 * key) + 2 * 2 * key +
         5.0 * model.intermediate * model.experts_per_token;
}

double attention_us(const Model& model, const StepConstants& constants, const Batch& batch) {
  double us = 0;
  if (batch.decodes > 0) {
    const double bytes = static_cast<double>(batch.decode_context) *
                         static_cast<double>(model.kv_token_bytes()) / model.kv.layers;
    us += move_us(bytes, constants.attention_gbps) + constants.attention_us;
  }
  if (batch.prefill_tokens > 0) {
    const double flops =
        4.0 * static_cast<double>(batch.prefill_pairs) * model.heads * model.kv.head_size;
    us += compute_us(flops, constants.prefill_tflops) + constants.prefill_us;
  }
  return us;
}

}  // namespace

double step_time_us(const Model& model, const StepConstants& constants, const Batch& batch) {
  const double tokens = batch.tokens();
  if (tokens == 0) return 0;
  const auto attention = static_cast<double>(model.attention_parameters());
  const auto expert = static_cast<double>(model.expert_parameters());
  const auto head = static_cast<double>(model.head_parameters());
  const double layer_us =
      products_us(constants, attention * tokens, attention) +
      products_us(constants, expert * tokens * model.experts_per_token,
                  expert * model.experts_touched(tokens)) +
      attention_us(model, constants, batch) +
      move_us(kElementBytes * tokens * glue_elements(model), constants.glue_gbps) +
      constants.glue_us;
  double us = model.kv.layers * layer_us + constants.step_us;
  if (batch.sampled > 0)
    us +=
        products_us(constants, head * batch.sampled, head) + batch.sampled * constants.sequence_us;
  return us;
}

}  // namespace braid::serving
