// The models of the paper's evaluation (SuperInfer section 5.1): the properties that determine time
// and memory. Weights and KV caches are bf16.
#pragma once

#include <cstdint>
#include <string_view>

#include "base/status.h"
#include "kv/layout.h"

namespace braid::serving {

struct Model {
  const char* name;
  uint32_t hidden;
  uint32_t heads;
  uint32_t intermediate;  ///< of one expert
  uint32_t vocabulary;
  uint32_t experts;  ///< 1: none
  uint32_t experts_per_token;
  const char* source;
  kv::ModelShape kv;  ///< layers, KV heads, tokens of a block

  // Numbers of parameters; norms and routers are left out.
  uint64_t attention_parameters() const;  ///< the projections of one layer
  uint64_t expert_parameters() const;     ///< of one expert of one layer; without experts, its MLP
  uint64_t head_parameters() const { return uint64_t{vocabulary} * hidden; }

  uint64_t weight_bytes() const;    ///< of the whole model; embeddings are not tied to the head
  uint64_t kv_token_bytes() const;  ///< of one token in all layers
  uint64_t block_bytes() const { return kv_token_bytes() * kv.block_tokens; }
  uint32_t blocks_of(uint64_t tokens) const {
    return static_cast<uint32_t>((tokens + kv.block_tokens - 1) / kv.block_tokens);
  }
  /// Expected number of experts that `tokens` tokens choose, each at random and independently.
  double experts_touched(double tokens) const;
};

/// "Llama-3-8B", "Qwen2.5-32B" or "Mixtral-8x7B"; an error lists the names.
Result<Model> find_model(std::string_view name);

}  // namespace braid::serving
