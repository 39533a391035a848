// The time of a step of the model on one GPU: a roofline, whose constants are inputs.
// bench/serving/fit.py has the same formula and fits the constants to measurements.
#pragma once

#include <cstdint>
#include <string>

#include "serving/cost/model.h"

namespace braid::serving {

struct StepConstants {
  double matmul_tflops;   ///< of large matrix products
  double weight_gbps;     ///< of weights, in products of few tokens
  double matmul_us;       ///< added for the products of one group
  double attention_gbps;  ///< of KV caches, by decodes
  double attention_us;    ///< added for one layer
  double prefill_tflops;  ///< of attention among the tokens of a chunk and those before
  double prefill_us;      ///< added for one layer
  double glue_gbps;       ///< of activations, between the products of a layer
  double glue_us;         ///< added for one layer
  double sequence_us;     ///< for sampling one sequence
  double step_us;         ///< added for a step
};

/// The work of one step.
struct Batch {
  uint32_t decodes = 0;         ///< sequences of which one token is computed
  uint64_t decode_context = 0;  ///< tokens that these sequences read, in total
  uint32_t prefill_tokens = 0;  ///< tokens of chunks
  uint64_t prefill_pairs = 0;   ///< (token of a chunk, token that it attends to)
  uint32_t sampled = 0;         ///< sequences that get a token

  uint32_t tokens() const { return decodes + prefill_tokens; }
};

double step_time_us(const Model& model, const StepConstants& constants, const Batch& batch);

}  // namespace braid::serving
