// Prints what the simulator's step-time model says of some batches, a JSON object a line, for
// step_time_test.py.
#include <cstdio>

#include "serving/cost/calibration.h"

int main() {
  using namespace braid::serving;
  const StepConstants constants = h200_calibration().constants;
  const Batch batches[] = {{1, 4096, 0, 0, 1},
                           {64, 64 * 900, 0, 0, 64},
                           {300, 300 * 500, 700, 700 * 701 / 2, 301},
                           {0, 0, 2048, 2048 * 3000, 0}};
  for (const char* name : {"Llama-3-8B", "Qwen2.5-32B", "Mixtral-8x7B"})
    for (const Batch& batch : batches)
      std::printf(
          "{\"model\": \"%s\", \"decodes\": %u, \"context\": %llu, \"prefill\": %u, \"pairs\": "
          "%llu, \"sampled\": %u, \"us\": %.6f}\n",
          name, batch.decodes, static_cast<unsigned long long>(batch.decode_context),
          batch.prefill_tokens, static_cast<unsigned long long>(batch.prefill_pairs), batch.sampled,
          step_time_us(find_model(name).value(), constants, batch));
}
